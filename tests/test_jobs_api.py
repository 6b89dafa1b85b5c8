"""Drivers at the head: one for a run at a time, found by the run's uid, followed, ended, and every refusal in words."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from orchestrator.jobs_api import Jobs, connect, entrypoint, is_web_address
from schema.errors import ClusterError
from tests.fake_jobs import FakeClient, FakeJob

A, B = "a" * 32, "ab" * 16


def job(run_uid: str, number: int = 1, **fields: object) -> FakeJob:
    return FakeJob(submission_id=f"tokfleet-{run_uid}-{number}", **fields)  # type: ignore[arg-type]


def jobs(*known: FakeJob) -> Jobs:
    return Jobs(FakeClient(*known), "http://head:8265")


class AuthenticationError(Exception):
    """Called as Ray calls its own."""


def test_a_run_is_handed_over_under_an_id_that_is_its_own() -> None:
    client = FakeClient()
    handed = Jobs(client, "x").hand_over(A, "exec tokfleet drive", {"tokfleet": "{}"})
    assert (handed.run_uid, handed.number, handed.lives) == (A, 1, True)
    made = client.jobs[f"tokfleet-{A}-1"]
    assert (made.entrypoint, made.metadata) == ("exec tokfleet drive", {"tokfleet": "{}"})
    assert made.runtime_env == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "30"}}


def test_a_run_that_is_being_driven_is_not_handed_over_again() -> None:
    with pytest.raises(ClusterError, match="Run aaaaaaaa is being driven at the head already: `tokfleet logs"):
        jobs(job(A)).hand_over(A, "x", {})


def test_of_two_that_hand_a_run_over_at_once_ray_lets_one_through() -> None:
    client = FakeClient()
    taken = Jobs(client, "x")
    client.list_jobs = lambda: []  # type: ignore[method-assign]
    taken.hand_over(A, "x", {})
    with pytest.raises(ClusterError, match="is being driven at the head already"):
        taken.hand_over(A, "x", {})


def test_a_run_whose_driver_has_ended_gets_the_next_number() -> None:
    ended = (job(A, 1, status="STOPPED"), job(A, 2, status="FAILED"), job(B, 7))
    assert jobs(*ended).hand_over(A, "x", {}).number == 3


def test_runs_are_found_by_uid_by_its_start_and_as_the_latest() -> None:
    known = jobs(job(A, 1, start_time=5), job(A, 2, start_time=9), job(B, 1, start_time=7), FakeJob("raysubmit_x"))
    assert known.find(A).number == 2
    assert known.find("aa").run_uid == A
    assert known.find("latest").run_uid == A
    assert [each.number for each in known.of(A)] == [1, 2]


@pytest.mark.parametrize(
    ("run", "says"), [("f00", r"has driven no run 'f00'"), ("a", rf"Several runs at the head start with 'a': {A}, {B}")]
)
def test_a_run_that_is_not_there_or_not_one_is_refused(run: str, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        jobs(job(A), job(B)).find(run)


def test_a_head_without_any_run_has_no_latest() -> None:
    with pytest.raises(ClusterError, match=r"has driven no run 'latest'. `tokfleet submit` hands one over"):
        jobs(FakeJob("raysubmit_x"), FakeJob(None)).find("latest")


def test_lines_are_followed_whole_without_rays_heading() -> None:
    log = "Running entrypoint for job x: exec tokfleet drive\nfirst line\n" + "long " * 30 + "\nno end"
    found = jobs(job(A, log=log))
    assert list(found.follow(f"tokfleet-{A}-1")) == ["first line", "long " * 30, "no end"]
    assert found.logs(f"tokfleet-{A}-1").startswith("first line\n")


def test_following_may_be_given_up() -> None:
    lines = jobs(job(A, log="one\ntwo\n" * 50)).follow(f"tokfleet-{A}-1")
    assert next(lines) == "one"
    lines.close()


def test_stopping_waits_for_the_end_and_says_whether_there_was_something_to_stop() -> None:
    found = jobs(job(A))
    assert found.ended(f"tokfleet-{A}-1") is None
    assert found.stop(f"tokfleet-{A}-1")
    assert found.ended(f"tokfleet-{A}-1") == ("STOPPED", None)
    assert not found.stop(f"tokfleet-{A}-1")


def test_a_job_that_does_not_end_is_said_not_waited_for_for_ever() -> None:
    client = FakeClient(job(A))
    client.stubborn = True
    times = iter(range(100))
    found = Jobs(client, "x", clock=lambda: float(next(times)))
    with pytest.raises(ClusterError, match="has not ended within 2 s"):
        found.stop(f"tokfleet-{A}-1", seconds=2)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (AuthenticationError("Authentication failed: Forbidden"), r"Set RAY_AUTH_TOKEN"),
        (ConnectionError("Failed to connect"), r"connection to the head at http://head:8265 failed"),
        (RuntimeError("Request failed with status code 404: Job x does not exist."), "knows no such job"),
        (RuntimeError("Version check returned 404."), "no Jobs API of Ray"),
        (RuntimeError("The SDK requires the ray[default] installation"), r"pip install 'tokfleet\[head\]'"),
        (ValueError("Expecting value: line 1"), "no Jobs API of Ray"),
        (KeyError("ray_version"), "no Jobs API of Ray"),
    ],
)
def test_what_goes_wrong_at_the_head_is_one_sentence(fault: Exception, says: str) -> None:
    client = FakeClient(job(A))
    client.fault = fault
    with pytest.raises(ClusterError, match=says):
        Jobs(client, "http://head:8265").all()


def test_the_line_of_shell_that_the_head_runs_quotes_everything() -> None:
    line = entrypoint(["results", "a b", "$(rm x)", "--format", "csv"], {"COLUMNS": "80"})
    assert line == "exec env TOKFLEET_RAY_ADDRESS=auto COLUMNS=80 tokfleet results 'a b' '$(rm x)' --format csv"


def test_an_address_is_the_jobs_api_where_it_is_a_url() -> None:
    assert is_web_address("http://10.0.0.1:8265")
    assert not is_web_address("10.0.0.1:6379")
    assert not is_web_address("auto")
    assert not is_web_address(None)


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("RAY_AUTH_MODE", "NO_PROXY", "no_proxy", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")  # so that what `connect` sets is taken back


@pytest.fixture
def web_server() -> Iterator[str]:
    """Yield the address of a server that answers everything with a page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("no_token")
def test_where_nothing_listens_the_way_there_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"No Jobs API answers at http://127.0.0.1:{port}.*ssh -N -L 8265"):
            connect(f"http://127.0.0.1:{port}")


@pytest.mark.usefixtures("no_token")
def test_what_is_no_head_is_said_to_be_none(web_server: str) -> None:
    with pytest.raises(ClusterError, match="is no Jobs API of Ray as this version knows it"):
        connect(web_server)


@pytest.mark.usefixtures("no_token")
def test_without_a_token_nothing_is_sent_beyond_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Open:
        def close(self) -> None:
            """Nothing was opened."""

    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: Open())
    with pytest.raises(ClusterError, match=r"Only with a token is work sent to http://192\.0\.2\.1:8265"):
        connect("http://192.0.2.1:8265")


@pytest.mark.usefixtures("no_token")
@pytest.mark.parametrize("address", ["http://", "http://:1", "http://[::1", "http://x:99999999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="is no address of a head"):
        connect(address)


def test_a_head_that_has_just_been_started_is_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    real, naps = client.submit_job, list[float]()

    def submit_job(**options: object) -> str:
        if len(naps) < 2:
            raise RuntimeError("status code 500: No available agent to submit job, please try again later..")
        return real(**options)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "submit_job", submit_job)
    monkeypatch.setattr("orchestrator.jobs_api.time.sleep", naps.append)
    assert Jobs(client, "x").hand_over(A, "x", {}).number == 1
    assert naps == [1.0, 1.0]
    naps.clear()
    times = iter(range(0, 1000, 40))
    with pytest.raises(ClusterError, match="No available agent"):
        Jobs(client, "x", clock=lambda: float(next(times))).hand_over(B, "x", {})
