"""Does the fingerprint know recorded machines as lscpu and lstopo know them, and never fail on one?

    python benchmarks/fingerprint_dumps.py DIR

DIR holds one directory per machine: a root with its `proc/` and `sys/` (itself, or `fsroot/` in it), captured outputs
in `cmd/`, and what is known of it: `EXPECTED.lscpu`, `EXPECTED.lstopo.console` or `.xml`. A line of the table is
a machine with such an output and a /sys/devices/system/cpu. A cell is `ours|py-cpuinfo`; where ours differs from what
is known, that stands behind `!`. py-cpuinfo has no field for core types, sockets, cores, threads and nodes; its
caches count as right when the sum over all instances is, since it has no instances either.

Where lstopo was kept to a part of the machine (a control group), ours is asked for the same CPUs. After the table:
each miss with the remark that came with the known output, what holds per column, names, captures of GPUs, time, how
py-cpuinfo's answers and none compare, and twins: machines with one hardware id.

Exit code: 0 when at least 95 % of the machines are right in every column, no reader failed or took over 1 s, py-cpuinfo
changes no value, and no two machines with different known facts share an id; else 1.
"""

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.known_topology import Known
from benchmarks.recorded_machine import Machine, read
from benchmarks.topology_columns import COLUMNS, expected, ours, plain_caches, wrong
from schema.host import Hardware
from worker.fingerprint.design import tidy

NEEDED, MAX_SECONDS = 0.95, 1.0


def table(machines: Iterable[Machine]) -> tuple[int, int]:
    """Print the table, the misses and what holds per column; return how many machines are right, of how many."""
    print(f"{'machine':42}" + "".join(name.rjust(15) for name in COLUMNS))
    misses: list[str] = []
    stated, right, plain_right = Counter[str](), Counter[str](), Counter[str]()
    missed: set[str] = set()
    compared: set[str] = set()
    for machine in machines:
        for one in machine.known:
            values = ours(machine, one)
            bad = wrong(one, values)
            print(_line(machine, one, values, bad))
            compared.add(machine.name)
            missed |= {machine.name} if bad else set()
            stated.update(expected(one).keys())
            right.update(expected(one).keys() - bad.keys())
            plain_right["CPUs"] += machine.plain.get("count") == one.cpus
            plain_right["caches"] += plain_caches(one, machine.plain)
            misses += [f"  {machine.name}, {one.source}: {name}: {what}" for name, what in bad.items()]
            misses += [f"    its own remark: {one.notes}"] if bad and one.notes else []
    print("\nmisses:", *misses or ["  none"], sep="\n")
    print("\nright by column, ours | py-cpuinfo:")
    for name in COLUMNS:
        print(f"  {name:8} {right[name]:4} of {stated[name]:4} | {plain_right[name]:4}")
    return len(compared - missed), len(compared)


def _line(machine: Machine, one: Known, values: Mapping[str, Any], bad: Mapping[str, str]) -> str:
    cells = []
    for name in COLUMNS:
        if name == "caches":
            theirs = "right" if plain_caches(one, machine.plain) else "wrong"
            cells.append(f"{'wrong' if name in bad else 'right'}|{theirs}")
        else:
            theirs = str(machine.plain.get("count") or "-") if name == "CPUs" else "-"
            cells.append(f"{_cell(values[name])}{'!' + bad[name] if name in bad else ''}|{theirs}")
    return f"{machine.name[:42]:42}" + "".join(cell.rjust(15) for cell in cells)


def _cell(value: Any) -> str:
    return "?" if value is None else "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def names(machines: Iterable[Machine]) -> None:
    """Print of how many machines that hold a name we and py-cpuinfo give one, and those that we do not name."""
    holding = [machine for machine in machines if machine.holds_name]
    unnamed = [machine for machine in holding if not _is_named(machine.hardware)]
    plain = sum(tidy(machine.plain.get("brand_raw")) is not None for machine in holding)
    print(f"\nnamed, of {len(holding)} machines whose files hold a name: {len(holding) - len(unnamed)} | {plain}")
    for machine in unnamed:
        print(f"  {machine.name}: {machine.hardware.cpu_name}, {[one.name for one in machine.hardware.core_types]}")


def _is_named(hardware: Hardware) -> bool:
    given = [hardware.cpu_name, *(one.name for one in hardware.core_types)]
    return all(name and "unknown" not in name for name in given)


def captures(machines: Iterable[Machine]) -> bool:
    """Print how many captured outputs of GPU tools were read; return whether all were."""
    counts = [(machine.name, n) for machine in machines for n in machine.n_gpus]
    void = [name for name, n in counts if not n]
    print(f"\ncaptures of GPU tools: {len(counts)}, with {sum(n for _, n in counts)} GPUs; not read: {void or 'none'}")
    return not void


def failures(machines: list[Machine]) -> bool:
    """Print what failed, what was slow and where py-cpuinfo changes a value; return whether nothing did."""
    failed = [f"  {m.name}: {m.problem}" for m in machines if m.problem]
    slow = [f"  {m.name}: {m.seconds:.2f} s" for m in machines if m.seconds > MAX_SECONDS]
    unlike = [f"  {m.name}: {', '.join(m.differences)}" for m in machines if m.differences]
    print(f"\nread {len(machines)} machines, the slowest in {max((m.seconds for m in machines), default=0):.2f} s")
    for title, lines in (
        ("failed", failed),
        (f"over {MAX_SECONDS:g} s", slow),
        ("other values with py-cpuinfo than without", unlike),
    ):
        print(f"{title}: {len(lines)}", *lines, sep="\n")
    return not (failed or slow or unlike)


def twins(machines: Iterable[Machine]) -> bool:
    """Print the groups of machines with one hardware id; return whether none of them differ in what is known."""
    groups: dict[str, list[Machine]] = defaultdict(list)
    for machine in machines:
        if machine.hardware.core_types:
            groups[machine.hardware.hardware_id].append(machine)
    print(f"\n{len(groups)} hardware ids; machines with one id:")
    fine = True
    for group in (group for group in groups.values() if len(group) > 1):
        facts = {str(sorted(expected(machine.known[0]).items())) for machine in group if machine.known}
        fine = fine and len(facts) < 2
        print(
            "  " + " = ".join(machine.name for machine in group) + ("" if len(facts) < 2 else "  BUT KNOWN TO DIFFER")
        )
    return fine


def main() -> int:
    """Print all that the module's text names, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR")
    places = sorted(place for place in parser.parse_args().directory.iterdir() if place.is_dir())
    with tempfile.TemporaryDirectory() as home:
        machines = [read(place, Path(home)) for place in places]
    n_right, n_all = table(machines)
    names(machines)
    fine = [captures(machines), failures(machines), twins(machines)]
    share = n_right / n_all if n_all else 1.0
    print(f"\nright in every column: {n_right} of {n_all} machines, {share:.1%}")
    return 0 if share >= NEEDED and all(fine) else 1


if __name__ == "__main__":
    raise SystemExit(main())
