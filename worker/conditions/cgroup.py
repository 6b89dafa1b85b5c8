"""How often and how long a CPU quota held a process up: its control group's counters and those of all above."""

import re
from pathlib import Path

from worker.conditions.counters import Counters, text
from worker.fingerprint import cgroups

Groups = tuple[str, ...]
"""Directories under the root."""

_THROTTLED = re.compile(r"^(nr_throttled|throttled_usec|throttled_time) (\d{1,18})$", re.M)


def groups(root: Path, pid: int) -> Groups:
    """Return the groups that may throttle `pid`: its own and all its ancestors that we can see, of both versions."""
    return tuple(str(place.relative_to(root)) for place in cgroups.groups(root, "cpu", pid).directories)


def of_groups(root: Path, directories: Groups) -> Counters:
    """Return by group `throttles:…`, and `throttled_us:…` summed over its CPUs; a group without a quota has none."""
    found = {}
    for directory in directories:
        fields = dict(_THROTTLED.findall(text(root, f"{directory}/cpu.stat")))
        if "nr_throttled" in fields:
            found[f"throttles:{directory}"] = int(fields["nr_throttled"])
        if "throttled_usec" in fields:
            found[f"throttled_us:{directory}"] = int(fields["throttled_usec"])
        elif "throttled_time" in fields:  # version 1 counts nanoseconds
            found[f"throttled_us:{directory}"] = int(fields["throttled_time"]) // 1000
    return found
