"""A sweep's model files are found on hosts by content, fetched where that is allowed, and never mixed up."""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator import on_host
from orchestrator.distribute import Fetch
from orchestrator.model_places import ModelPlaces
from schema.errors import ClusterError, ModelError, TokfleetError
from schema.job import ModelRef
from schema.sweep import Sweep, parse_sweep
from worker import digests, model_search, models, recipe, synthetic
from worker.model_transfer import receive, serve_chunk


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small model that loads."""
    made = synthetic.recipe_of(synthetic.parse("test-tiny:Q8_0"))
    path, _ = recipe.build(made, tmp_path_factory.mktemp("tiny"), lambda *_: None)
    return path


@dataclass
class Hosts:
    """Hosts that answer in this process, each with a home of its own; `asked` is what they were asked."""

    root: Path
    names: tuple[str, ...]
    asked: list[tuple[str, str]] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)

    def ask(
        self, hosts: Iterable[str], question: Callable[..., Any], *arguments: Any, seconds: float
    ) -> dict[str, Any]:
        return {host: self._answer(host, question, arguments) for host in hosts}

    def _answer(self, host: str, question: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self.asked.append((host, question.__name__))
        before = os.environ.get("TOKFLEET_HOME")
        os.environ["TOKFLEET_HOME"] = str(self.root / host / "home")
        try:
            return ClusterError("gone") if host in self.silent else question(*arguments)
        except TokfleetError as error:
            return error
        finally:
            os.environ.pop("TOKFLEET_HOME")
            if before is not None:
                os.environ["TOKFLEET_HOME"] = before

    def described(self, spec: str) -> dict[str, Any]:
        """Return what each says of the model, as a plan asks it; the path leads into the host's own files."""
        found = {}
        for host in self.names:
            answer = (
                self._answer(host, on_host._model, ("path", spec)) if self._sees(host, spec) else "There is no file."
            )
            found[host] = {"models": {spec: answer}}
        self.asked.clear()
        return found

    def _sees(self, host: str, spec: str) -> bool:
        return Path(spec).is_file() and (self.root / host) in Path(spec).parents

    def fetch(self, each: Fetch) -> str:
        assert each.source is not None
        content = each.source.content
        *_, last = receive(
            content, self.root / each.to / "home", lambda part, offset, size: serve_chunk(content, part, offset, size)
        )
        return str(last["path"])


def sweep_of(spec: str) -> Sweep:
    return parse_sweep(f"models: [{{path: {spec}}}]\n", "f.yaml", Path("/"))


def put(tiny: Path, to: Path, change: bool = False) -> str:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(tiny, to)
    if change:
        with to.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x7f")
    return str(to)


def places(hosts: Hosts, **fields: Any) -> ModelPlaces:
    folders = {name: (str(hosts.root / name / "llm"),) for name in hosts.names}
    return ModelPlaces(ask=hosts.ask, folders=folders, **fields)


def refs(answers: dict[str, Any], spec: str) -> dict[str, Any]:
    return {
        host: found["ref"] if isinstance(found := answer["models"][spec], dict) else found
        for host, answer in answers.items()
    }


def test_a_model_is_found_elsewhere_by_content_and_one_byte_apart_is_not_it(tiny: Path, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ("boxa", "boxb", "boxc"))
    spec = put(tiny, tmp_path / "boxa/bench/models/tiny.gguf")
    other = put(tiny, tmp_path / "boxb/llm/another-name.gguf")
    put(tiny, tmp_path / "boxc/llm/tiny.gguf", change=True)
    found = refs(places(hosts)(sweep_of(spec), hosts.described(spec)), spec)
    assert found["boxb"]["spec"] == other
    assert found["boxb"]["identity"] == found["boxa"]["identity"]
    assert found["boxc"] == f"{spec} is not on boxc: it is on boxa, boxb. Copy it, or allow `--distribute`."


def test_what_was_allowed_is_fetched_and_measured_as_the_same_model(tiny: Path, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ("boxa", "boxc"))
    spec = put(tiny, tmp_path / "boxa/models/tiny.gguf")
    told: list[str] = []
    found = refs(places(hosts, fetch=hosts.fetch, tell=told.append)(sweep_of(spec), hosts.described(spec)), spec)
    assert found["boxc"]["identity"] == found["boxa"]["identity"]
    assert Path(found["boxc"]["spec"]).read_bytes() == tiny.read_bytes()
    assert told == ["boxc fetches tiny.gguf from boxa"]


def test_where_a_fetch_fails_the_host_goes_without_and_says_why(tiny: Path, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ("boxa", "boxc", "boxd"))
    spec = put(tiny, tmp_path / "boxa/models/tiny.gguf")

    def fetch(each: Fetch) -> str:
        raise ModelError("no room left")

    answers = places(hosts, fetch=fetch, apart=frozenset({"boxd"}))(sweep_of(spec), hosts.described(spec))
    found = refs(answers, spec)
    assert found["boxc"] == "no room left"
    assert found["boxd"] == f"{spec} is not on boxd: it is on boxa. Copy it there by hand."


def test_where_every_host_has_the_model_nobody_is_asked_again(tiny: Path, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ("boxa",))
    spec = put(tiny, tmp_path / "boxa/models/tiny.gguf")
    places(hosts)(sweep_of(spec), hosts.described(spec))
    assert hosts.asked == []


def test_a_host_that_falls_silent_keeps_its_own_reason(tiny: Path, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ("boxa", "boxb"))
    spec = put(tiny, tmp_path / "boxa/models/tiny.gguf")
    described = hosts.described(spec) | {"boxz": ClusterError("never answered")}
    hosts.silent = {"boxb"}
    answers = places(hosts)(sweep_of(spec), described)
    assert isinstance(answers["boxz"], ClusterError)
    assert "is not on boxb" in answers["boxb"]["models"][spec]


@pytest.fixture
def huge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take any file for one that is too large to be hashed for a plan."""
    monkeypatch.setattr(model_search, "HASHED_AT_ONCE_BYTES", 1)
    monkeypatch.setattr(models, "HASHED_AT_ONCE_BYTES", 1)
    monkeypatch.setattr(digests, "PIECE_BYTES", 64)


def test_a_huge_file_that_three_hosts_see_is_read_once_and_only_for_a_run(
    tiny: Path, tmp_path: Path, huge: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts(tmp_path, ("boxa", "boxb", "boxc"))
    spec = put(tiny, tmp_path / "nas/tiny.gguf")
    monkeypatch.setattr(Hosts, "_sees", lambda self, host, spec: True)
    plan = refs(places(hosts)(sweep_of(spec), hosts.described(spec)), spec)
    assert len({ref["identity"] for ref in plan.values()}) == 1
    assert plan["boxa"]["identity"].startswith("quick:")
    assert "read_whole" not in [question for _, question in hosts.asked]
    run = refs(places(hosts, may_read=True)(sweep_of(spec), hosts.described(spec)), spec)
    assert {ref["identity"] for ref in run.values()} == {f"sha256:{digests.content_sha256(tiny, None)}"}
    assert [question for _, question in hosts.asked].count("read_whole") == 1
    assert hosts.asked.count(("boxb", "take_over")) == 1


def test_huge_files_that_look_alike_on_two_disks_are_two_models(
    tiny: Path, tmp_path: Path, huge: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts(tmp_path, ("boxa", "boxb"))
    spec = put(tiny, tmp_path / "boxa/models/tiny.gguf")
    described = hosts.described(spec)
    twin = put(tiny, tmp_path / "boxb/llm/tiny.gguf")
    with open(twin, "r+b") as file:
        file.seek(os.path.getsize(twin) // 2)
        file.write(b"\xff" * 8)
    found = refs(places(hosts)(sweep_of(spec), described), spec)
    assert found["boxb"]["spec"] == twin
    assert found["boxa"]["identity"] != found["boxb"]["identity"]
    assert models.resolve(ModelRef(**found["boxb"]), tmp_path / "home", lambda *_: None).path == Path(twin)


@pytest.mark.parametrize("answer", [None, 3, [], {"models": 3}, {"models": {}}, {"models": {"/m.gguf": 7}}])
def test_nonsense_in_an_answer_is_left_to_the_plan_to_refuse(answer: Any, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ("boxa",))
    assert places(hosts)(sweep_of("/m.gguf"), {"boxa": answer}) == {"boxa": answer}


def test_a_model_of_the_hub_is_left_to_each_host_to_fetch_where_that_is_allowed(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ("boxa", "boxb"))
    sweep = parse_sweep("models: [{hf: user/repo:Q4_K_M}]\n", "f.yaml", Path("/"))
    held = {"ref": {"source": "hf", "spec": "user/repo@abc/m.gguf", "identity": "sha256:1"}, "sizes": {}}

    def answers() -> dict[str, Any]:
        return {"boxa": {"models": {"user/repo:Q4_K_M": held}}, "boxb": {"models": {"user/repo:Q4_K_M": "not there"}}}

    assert places(hosts)(sweep, answers()) == answers()
    assert places(hosts, fetch=hosts.fetch)(sweep, answers())["boxb"]["models"]["user/repo:Q4_K_M"] == held
