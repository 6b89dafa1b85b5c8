"""Drivers that the head runs for us, by Ray's Jobs API: handed over, looked at, followed and stopped, from any machine.

Each is one Ray job, whose id is made of the run's uid and a number: Ray refuses an id a second time, which is the lock
that keeps two drivers off one run. Ray reads its environment when it is imported, so that happens in `connect`.
"""

import asyncio
import contextlib
import logging
import os
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.cluster import has_token
from orchestrator.handover import PREFIX, run_and_number, submission_id
from orchestrator.jobs_address import avoid_proxies, is_here, no_client, plain_words, reach
from schema.errors import ClusterError

DASHBOARD = "http://127.0.0.1:8265"
POLL_SECONDS = 0.2
STOP_SECONDS = 60.0
GRACE_SECONDS = 30
"""How long a driver that is told to end may take until Ray kills it; it frees its hosts first."""

RAYS_OWN = re.compile(r"Running entrypoint for job |[0-9-]{10} [0-9:,]+\s+INFO job_manager\.py:")
READY_SECONDS = 60.0
NOT_READY = "No available agent"
LIVING = ("PENDING", "RUNNING")


class Client(Protocol):
    """What of `ray.job_submission.JobSubmissionClient` is used."""

    def submit_job(
        self,
        *,
        entrypoint: str,
        submission_id: str | None = None,
        runtime_env: dict[str, Any] | None = None,
        metadata: dict[str, str] | None = None,
    ) -> str:
        """Start a job and return its id."""

    def stop_job(self, job_id: str) -> bool:
        """Ask a job to end."""

    def list_jobs(self) -> list[Any]:
        """Return the details of all jobs."""

    def get_job_info(self, job_id: str) -> Any:
        """Return the details of a job."""

    def get_job_logs(self, job_id: str) -> str:
        """Return what a job printed."""

    def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """Yield what a job prints, until it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """One driver of a run at the head; `status` is Ray's word, `exit_code` None while it runs and if it was stopped."""

    submission_id: str
    run_uid: str
    number: int
    status: str
    exit_code: int | None = None
    started_at: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def lives(self) -> bool:
        """Whether it waits or runs."""
        return self.status in LIVING


class Jobs:
    """The drivers at one head."""

    def __init__(self, client: Client, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.address = address
        self._client = client
        self._clock = clock

    @property
    def is_here(self) -> bool:
        """Whether this machine is the head."""
        return is_here(self.address)

    def hand_over(self, run_uid: str, entrypoint: str, metadata: Mapping[str, str]) -> RunJob:
        """Have the head drive the run, and return the job; ClusterError where it drives that run already."""
        before = self.of(run_uid)
        if any(job.lives for job in before):
            raise ClusterError(_driven(run_uid))
        number = max((job.number for job in before), default=0) + 1
        try:
            return self._started(submission_id(run_uid, number), entrypoint, metadata)
        except ClusterError as error:
            if "already exists" in str(error.__cause__):
                raise ClusterError(_driven(run_uid)) from error
            raise

    def start(self, name: str, entrypoint: str) -> str:
        """Run a command at the head besides any run; return its job's id, which must be new."""
        return self._submit(entrypoint, submission_id=name)

    def all(self) -> list[RunJob]:
        """Return every driver that the head remembers, the oldest first."""
        with plain_words(self.address):
            found = [_run_job(details) for details in self._client.list_jobs()]
        return sorted((job for job in found if job is not None), key=lambda job: (job.started_at or 0, job.number))

    def of(self, run_uid: str) -> list[RunJob]:
        """Return the drivers of one run, in their order."""
        return sorted((job for job in self.all() if job.run_uid == run_uid), key=lambda job: job.number)

    def find(self, run: str) -> RunJob:
        """Return the last driver of the run with this uid or start of one, or of the `latest` run.

        Raises ClusterError where the head has driven no such run, or several.
        """
        known = self.all()
        runs = list(dict.fromkeys(job.run_uid for job in known))
        named = [run] if run in runs else [uid for uid in runs if uid.startswith(run)]
        runs = [job.run_uid for job in known[-1:]] if run == "latest" else named
        if not runs:
            raise ClusterError(
                f"The head at {self.address} has driven no run {run!r}. `tokfleet submit` hands one over; "
                "`tokfleet status` lists the runs of a store."
            )
        if len(runs) > 1:
            raise ClusterError(f"Several runs at the head start with {run!r}: {', '.join(runs)}. Give more of it.")
        return max((job for job in known if job.run_uid == runs[0]), key=lambda job: job.number)

    def ended(self, submission: str) -> tuple[str, int | None] | None:
        """Return status and exit code of a job that has ended, None while it lives."""
        details = self._details(submission)
        status = _word(details.status)
        return None if status in LIVING else (status, details.driver_exit_code)

    def logs(self, submission: str) -> str:
        """Return what the job has printed."""
        with plain_words(self.address):
            lines = self._client.get_job_logs(submission).split("\n")
        return "\n".join(filter(_is_told, lines))

    def follow(self, submission: str) -> Generator[str, None, None]:
        """Yield the lines that the job has printed and prints, until it ends."""
        text = ""
        for piece in self._pieces(submission):
            *lines, text = (text + piece).split("\n")
            yield from filter(_is_told, lines)
        if text:
            yield text

    def stop(self, submission: str, seconds: float = STOP_SECONDS) -> bool:
        """Ask the job to end, wait until it has, and return whether it was living; ClusterError if it does not end."""
        with plain_words(self.address):
            lived = self._client.stop_job(submission)
        deadline = self._clock() + seconds
        while self.ended(submission) is None:
            if self._clock() > deadline:
                raise ClusterError(f"The job {submission} at the head has not ended within {seconds:g} s. Look there.")
            time.sleep(POLL_SECONDS)
        return lived

    def _details(self, submission: str) -> Any:
        with plain_words(self.address):
            return self._client.get_job_info(submission)

    def _started(self, submission: str, entrypoint: str, metadata: Mapping[str, str]) -> RunJob:
        self._submit(entrypoint, submission_id=submission, metadata=dict(metadata))
        run_uid, number = run_and_number(submission) or ("", 0)
        return RunJob(submission_id=submission, run_uid=run_uid, number=number, status="PENDING")

    def _submit(self, entrypoint: str, **options: Any) -> str:
        """Start a job; a head that has just been started is given time to be ready for one."""
        deadline = self._clock() + READY_SECONDS
        with plain_words(self.address):
            while True:
                try:
                    return self._client.submit_job(entrypoint=entrypoint, runtime_env=_runtime_env(), **options)
                except RuntimeError as error:
                    if NOT_READY not in str(error) or self._clock() > deadline:
                        raise
                time.sleep(1.0)

    def _pieces(self, submission: str) -> Iterator[str]:
        """Yield the log as Ray hands it out; it ends with the job, or where the connection does."""
        loop = asyncio.new_event_loop()
        stream = self._client.tail_job_logs(submission)
        try:
            with plain_words(self.address):
                while (piece := loop.run_until_complete(_next(stream))) is not None:
                    yield piece
        finally:
            with contextlib.suppress(Exception):
                loop.run_until_complete(_close(stream))
            loop.close()


def connect(address: str | None = None) -> Jobs:
    """Return the drivers at the head: `http://HOST:8265`, a Ray address (HOST:PORT), or this machine's own head.

    Raises ClusterError with what to do where no head answers there, where it refuses us, and where it has no Jobs API.
    """
    os.environ["RAY_AUTH_MODE"] = "token" if has_token() else "disabled"
    own = os.environ.get("RAY_ADDRESS")  # of the cluster that this process is a job of
    # Ray would prefer these to the address that we were given.
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        os.environ.pop(name, None)
    url = _url((own if own and address == "auto" else address) or DASHBOARD)
    reach(url)
    avoid_proxies(url)
    try:
        from ray.job_submission import JobSubmissionClient

        logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)  # it tells of each log that ends

        with plain_words(url):
            return Jobs(JobSubmissionClient(url), url)
    except ImportError as error:
        raise no_client() from error


def is_web_address(address: str | None) -> bool:
    """Return whether the address is the head's Jobs API rather than a Ray cluster that this machine is in."""
    return bool(address) and str(address).startswith(("http://", "https://"))


def entrypoint(arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Return the line of shell that runs `tokfleet` with `arguments` at the head, as a member of its cluster."""
    told = {"TOKFLEET_RAY_ADDRESS": "auto", **(variables or {})}
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in told.items())
    return f"exec env {assigned} tokfleet {shlex.join(arguments)}"


def _runtime_env() -> dict[str, Any]:
    return {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(GRACE_SECONDS)}}


def _url(address: str) -> str:
    """Return the URL of the Jobs API; of a Ray address it is asked of the head."""
    if is_web_address(address):
        return address.rstrip("/")
    from ray.dashboard.utils import get_address_for_submission_client

    if address != "auto":
        reach(f"http://{address}")
    with plain_words(address):
        return str(get_address_for_submission_client(address))


def _driven(run_uid: str) -> str:
    return (
        f"Run {run_uid[:8]} is being driven at the head already: `tokfleet logs {run_uid[:8]} --follow` shows it, "
        f"`tokfleet cancel {run_uid[:8]}` ends it."
    )


def _run_job(details: Any) -> RunJob | None:
    """Return Ray's details of a job as ours; None where it is no driver of a run."""
    submission = str(details.submission_id or "")
    found = run_and_number(submission) if submission.startswith(PREFIX) else None
    if found is None:
        return None
    return RunJob(
        submission_id=submission,
        run_uid=found[0],
        number=found[1],
        status=_word(details.status),
        exit_code=details.driver_exit_code,
        started_at=details.start_time,
        metadata=details.metadata or {},
    )


def _word(status: Any) -> str:
    return str(getattr(status, "value", status))


def _is_told(line: str) -> bool:
    """Return whether a line is the job's own: Ray writes some before them."""
    return not RAYS_OWN.match(line)


async def _next(stream: AsyncIterator[str]) -> str | None:
    return await anext(stream, None)


async def _close(stream: AsyncIterator[str]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
