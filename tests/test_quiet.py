"""Waiting until nobody else loads the machine: bounded, told, and never touching anybody."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from worker.quiet import LOOK_SECONDS, QUIET_LOOKS, Load, Meter, Waited, wait_until_quiet


class Machine:
    """A machine whose load is known beforehand, on a clock of its own."""

    def __init__(self, *loads: Load) -> None:
        self.now, self._loads, self._last = 0.0, iter(loads), loads[-1]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def look(self) -> Load:
        return next(self._loads, self._last)

    def wait(self, limit_seconds: float) -> tuple[list[str], Waited]:
        waiting = wait_until_quiet(limit_seconds, self.look, lambda: self.now, self.sleep)
        return drained(waiting)


def drained(waiting: Generator[dict[str, Any], None, Waited]) -> tuple[list[str], Waited]:
    texts = []
    while True:
        try:
            texts.append(next(waiting)["text"])
        except StopIteration as stop:
            return texts, stop.value


def busy(cores: float | None, *on_gpus: str) -> Load:
    return Load(busy_cores=cores, n_cpus=8, on_gpus=on_gpus)


def test_a_quiet_machine_is_found_quiet_after_a_few_looks_and_nothing_is_told() -> None:
    assert Machine(busy(0.05)).wait(600) == (
        [],
        Waited(quiet=True, seconds=QUIET_LOOKS * LOOK_SECONDS, load="0.1 of 8 CPUs are busy"),
    )


def test_a_pause_between_two_loads_is_not_quiet_yet() -> None:
    texts, waited = Machine(busy(4), busy(0), busy(0), busy(4), busy(0)).wait(600)
    assert waited.quiet
    assert waited.seconds == (4 + QUIET_LOOKS) * LOOK_SECONDS
    assert texts == ["waiting until it is quiet: 4.0 of 8 CPUs are busy"]


def test_the_wait_is_bounded_and_says_what_still_goes_on() -> None:
    texts, waited = Machine(busy(0, "GPU 0 (RTX 3090) was also used by python (123)")).wait(300)
    assert waited == Waited(
        quiet=False, seconds=300, load="0.0 of 8 CPUs are busy; GPU 0 (RTX 3090) was also used by python (123)"
    )
    assert len(texts) == 10


def test_a_machine_that_does_not_tell_is_not_waited_for() -> None:
    texts, waited = Machine(busy(None)).wait(600)
    assert (texts, waited.quiet) == ([], None)
    assert waited.load == "this machine does not tell how busy it is"


@pytest.mark.parametrize(
    ("cores", "n_cpus", "quiet"), [(0.1, 2, True), (0.2, 2, False), (3.0, 64, True), (3.3, 64, False)]
)
def test_the_limit_is_a_share_of_the_cpus(cores: float, n_cpus: int, quiet: bool) -> None:
    assert Load(busy_cores=cores, n_cpus=n_cpus).is_quiet is quiet


def test_a_meter_counts_what_others_do_and_not_what_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Iterator[dict[str, int]] = iter(
        [{"busy_ticks": 1000, "own_ticks": 500}, {"busy_ticks": 1450, "own_ticks": 550}]
    )
    clock: Callable[[], float] = iter([10.0, 12.0]).__next__
    monkeypatch.setattr(Meter, "_counters", lambda self: next(counted))
    meter = Meter(clock=clock)
    load = meter.look()
    assert load.busy_cores == pytest.approx(400 / 100 / 2)


def test_this_machine_tells_its_load() -> None:
    load = Meter().look()
    assert load.busy_cores is None or load.busy_cores >= 0
    assert load.n_cpus >= 1
