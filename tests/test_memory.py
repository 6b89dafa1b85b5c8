"""When memory runs short: Ray keeps its hands off, and the kernel ends only the measuring process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import Command

pytestmark = pytest.mark.ray

LIMIT_BYTES = 1 << 30
GROUP = "tokfleet-test"


@pytest.fixture
def command(tmp_path: Path, standin_python: str) -> Command:
    (tmp_path / "sweep.yaml").write_text(
        "name: memory\nmodels: [{synthetic: 'test-tiny:Q8_0'}]\ntests: {n_gen: [4, 6]}\nrepeat: 2\n"
    )
    return Command(tmp_path / "home", standin_python)


@pytest.fixture
def small_cgroup() -> Iterator[str]:
    """Yield a memory cgroup of 1 GiB; an empty text where none can be made: then the whole machine is the limit."""
    group, limit = _cgroup()
    if group is None:
        yield ""
        return
    group.mkdir(exist_ok=True)
    (group / limit).write_text(str(LIMIT_BYTES))
    yield str(group)
    group.rmdir()


def _cgroup() -> tuple[Path | None, str]:
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / GROUP
        try:
            group.mkdir(exist_ok=True)
            if (group / limit).exists():
                (group / limit).write_text(str(LIMIT_BYTES))
                return group, limit
            group.rmdir()
        except OSError:
            continue
    return None, ""


def test_a_child_that_holds_97_percent_of_memory_is_not_killed_by_ray(command: Command) -> None:
    end = command.run("run", str(command.home.parent / "sweep.yaml"), TOKFLEET_FAULT="hold@decode")
    assert end.returncode == 0, end.stderr
    assert command.rows("select count(*) n from results") == [{"n": 2}]
    assert command.rows("select count(*) n from failures") == [{"n": 0}]


def test_a_real_lack_of_memory_ends_as_failed_oom_and_the_rest_goes_on(command: Command, small_cgroup: str) -> None:
    sweep = str(command.home.parent / "sweep.yaml")
    end = command.run("run", sweep, TOKFLEET_FAULT="eat@decode#4", TOKFLEET_STANDIN_CGROUP=small_cgroup)
    assert end.returncode == 3, end.stderr
    (failure,) = command.rows("select test, stage, failure_kind, signal, message from failures")
    assert (failure["test"], failure["stage"], failure["failure_kind"]) == ("tg4", "decode", "oom")
    assert failure["signal"] == "SIGKILL"
    assert "memory ran out" in failure["message"]
    assert command.rows("select count(*) n from results") == [{"n": 1}]
