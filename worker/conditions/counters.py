"""The kernel's counters of a process and of the machine, as whole numbers; what cannot be read is absent.

A name with a colon belongs to what comes and goes, a thread or a control group, and then begins at nothing.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

Counters = dict[str, int]

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MOST_BYTES = 65536
PAGE = 4096
"""What one read of a file in /proc brings at most."""


def text(root: Path, name: str) -> str:
    """Return a small file's text by the shortest way, "" where it cannot be read: a snapshot reads dozens."""
    try:
        descriptor = os.open(f"{root}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return _whole(descriptor).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _whole(descriptor: int) -> bytes:
    content = part = os.read(descriptor, MOST_BYTES)
    # A short answer is the whole of it, except that /proc hands out its longer files by the page.
    while len(part) > PAGE // 2 and len(content) < MOST_BYTES:
        part = os.read(descriptor, MOST_BYTES)
        content += part
    return content


def number(root: Path, name: str) -> int | None:
    """Return the whole number that a file holds, None where it holds none."""
    found = text(root, name).strip()
    return int(found) if re.fullmatch(r"-?\d{1,18}", found) else None


def of_process(root: Path, pid: int) -> Counters:
    """Return `cpu:TID` and `delay:TID` (ns that each thread ran, and waited for a CPU), `own_ticks`, `major_faults`.

    The last two include threads that have ended. The others are fields 1 and 2 of schedstat, which some kernels
    do not keep.
    """
    found = dict(_threads(root, pid))
    # The name in parentheses may hold blanks and parentheses: the fields follow the last one.
    fields = text(root, f"proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) > 12 and fields[9].isdigit() and fields[11].isdigit() and fields[12].isdigit():
        found["major_faults"] = int(fields[9])
        found["own_ticks"] = int(fields[11]) + int(fields[12])
    return found


def _threads(root: Path, pid: int) -> Iterator[tuple[str, int]]:
    for thread in thread_ids(root, pid):
        fields = text(root, f"proc/{pid}/task/{thread}/schedstat").split()
        if len(fields) == 3 and fields[0].isdigit() and fields[1].isdigit():
            yield f"cpu:{thread}", int(fields[0])
            yield f"delay:{thread}", int(fields[1])


def thread_ids(root: Path, pid: int) -> list[str]:
    """Return the ids of a process's threads, none where there is no such process."""
    try:
        return os.listdir(f"{root}/proc/{pid}/task")
    except OSError:
        return []


def of_machine(root: Path) -> Counters:
    """Return ticks of all CPUs together (`busy_ticks`, `steal_ticks`, `all_ticks`), pressure and swap-ins.

    `cpu_pressure_us` is the time in which some task waited for a CPU, `memory_pressure_us` and `io_pressure_us`
    that in which all tasks at work waited for memory or a disk.
    """
    return {**_ticks(root), **dict(_pressures(root)), **_swapped_in(root)}


def _ticks(root: Path) -> Counters:
    match = re.match(r"cpu +((?:\d+ ?){8})", text(root, "proc/stat"))
    if not match:
        return {}
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, match[1].split())
    busy = user + nice + system + irq + softirq  # a guest's time is part of `user` already
    return {"busy_ticks": busy, "steal_ticks": steal, "all_ticks": busy + idle + iowait + steal}


def _pressures(root: Path) -> Iterator[tuple[str, int]]:
    for kind, line in (("cpu", "some"), ("memory", "full"), ("io", "full")):
        match = re.search(rf"^{line} .*\btotal=(\d{{1,18}})$", text(root, f"proc/pressure/{kind}"), re.M)
        if match:
            yield f"{kind}_pressure_us", int(match[1])


def _swapped_in(root: Path) -> Counters:
    match = re.search(r"^pswpin (\d{1,18})$", text(root, "proc/vmstat"), re.M)
    return {"swapped_in_pages": int(match[1])} if match else {}


def growth(earlier: Counters, later: Counters) -> Counters:
    """Return what was added meanwhile to each counter that both hold; never below zero, as after a reset."""
    return {
        name: max(0, value - earlier.get(name, 0)) for name, value in later.items() if name in earlier or ":" in name
    }


def add(total: Counters | None, grown: Counters) -> Counters:
    """Return the sum of both; a counter that one of them lacks is lost, since its sum would be too small.

    What comes and goes is kept from either. None is the sum of nothing.
    """
    if total is None:
        return grown
    names = [name for name in total.keys() | grown.keys() if ":" in name or (name in total and name in grown)]
    return {name: total.get(name, 0) + grown.get(name, 0) for name in names}
