"""Which GPUs variables leave visible to a program started from here."""

import re
from collections.abc import Mapping, Sequence

VARIABLES = {
    "NVIDIA": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "AMD": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "Intel": (),
    "Apple": (),
}
NOTHING = ("", "-1", "void", "none", "nodevfiles")


def count(variable: str, value: str, uuids: Sequence[str | None]) -> int | None:
    """Return how many of the GPUs with `uuids` the variable's value leaves; None where it leaves them all.

    As CUDA and HIP read it: a list of indices and of beginnings of UUIDs ("GPU-5d5ba0d6"), which ends before the
    first entry that names no GPU, or names more than one. NVIDIA_VISIBLE_DEVICES is the container runtime's: it
    was obeyed before we ran, so only "void" and "none" mean something here.
    """
    entries = [entry.strip().lower() for entry in value.split(",")]
    if variable.startswith("NVIDIA_"):
        return 0 if entries[0] in NOTHING[1:] else None
    if entries[0] == "all":
        return None
    chosen: set[int | str] = set()
    for entry in entries:
        gpu = None if entry in NOTHING else _named(entry, uuids)
        if gpu is None or gpu in chosen:
            break
        chosen.add(gpu)
    return len(chosen)


def _named(entry: str, uuids: Sequence[str | None]) -> int | str | None:
    """Return which GPU the entry names, the same for the same one; None where it names none."""
    if re.fullmatch(r"\d{1,4}", entry):
        return int(entry) if int(entry) < len(uuids) else None
    if not re.match(r"(mig-)?gpu-|mig-", entry):
        return None
    known = [uuid.lower() for uuid in uuids if uuid]
    if len(known) < len(uuids):
        # The driver does not tell every UUID: the entry may well name one.
        return entry
    matches = [index for index, uuid in enumerate(known) if uuid.startswith(entry) or entry.startswith(f"mig-{uuid}")]
    return matches[0] if len(matches) == 1 else None


def hiding(vendor: str, environ: Mapping[str, str], uuids: Sequence[str | None]) -> dict[str, int]:
    """Return each variable that hides some of the vendor's GPUs, with how many it leaves."""
    found = {}
    for name in VARIABLES.get(vendor, ()):
        left = count(name, environ[name], uuids) if name in environ else None
        if left is not None and left < len(uuids):
            found[name] = left
    return found
