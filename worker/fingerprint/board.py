"""What the processor sits in: product, board or cloud instance type, the case, and the hypervisor if there is one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes
from worker.fingerprint.placeholders import is_placeholder

DMI = Path("sys/class/dmi/id")
DMI_ELSEWHERE = Path("sys/devices/virtual/dmi/id")
DEVICE_TREES = (Path("proc/device-tree"), Path("sys/firmware/devicetree/base"))
CLOUD_INIT = Path("run/cloud-init/instance-data.json")
CLOCK_SOURCES = Path("sys/devices/system/clocksource/clocksource0/available_clocksource")

HYPERVISORS = (
    ("wsl", "wsl"),
    ("amazon ec2", "kvm"),
    ("google compute engine", "kvm"),
    ("digitalocean", "kvm"),
    ("openstack", "kvm"),
    ("nutanix", "kvm"),
    ("kvm", "kvm"),
    ("qemu", "qemu"),
    ("vmware", "vmware"),
    ("innotek", "virtualbox"),
    ("virtualbox", "virtualbox"),
    ("z/vm", "z/vm"),
    ("xen", "xen"),
    ("microsoft corporation virtual machine", "hyper-v"),
    ("hyperv", "hyper-v"),
    ("parallels", "parallels"),
    ("apple virtualization", "apple"),
    ("bochs", "bochs"),
    ("bhyve", "bhyve"),
)
"""Words of kernel and firmware, and the hypervisor that they mean; who rents it out is in the product's name."""

CHASSIS_TYPES = {
    "portable": (8, 9, 10, 11, 14, 30, 31, 32),
    "desktop": (3, 4, 5, 6, 7, 13, 15, 16, 24, 35, 36),
    "server": (17, 23, 25, 28, 29),
}
"""Enclosure types of the SMBIOS specification (7.4.1); 1 and 2 say that nobody filled it in."""

CHASSIS_WORDS = {
    **dict.fromkeys(("laptop", "convertible", "tablet", "handset", "watch"), "portable"),
    **{"desktop": "desktop", "server": "server", "embedded": "other"},
}
"""What a device tree calls them (specification, root node)."""


def product_name(root: Path, notes: Notes) -> str | None:
    """Return vendor and product as the firmware names them, a cloud's with its instance type; else the board.

    Names that vendors left as they found them ("To be filled by O.E.M.") are none.
    """
    for source, name in _names(root):
        if name:
            notes.found("product_name", source)
            return name
    notes.missing("product_name", "neither DMI nor a device tree names the machine")
    return None


def chassis(root: Path, notes: Notes) -> str | None:
    """Return the kind of case: "portable", "desktop", "server", "other"; None where nothing names it."""
    listed = evidence.line(root / DMI / "chassis_type") or evidence.line(root / DMI_ELSEWHERE / "chassis_type") or ""
    number = int(listed) if re.fullmatch(r"[0-9]{1,3}", listed) else 0
    if number > 2:
        notes.found("chassis", "/sys/class/dmi/id")
        return next((kind for kind, numbers in CHASSIS_TYPES.items() if number in numbers), "other")
    word = CHASSIS_WORDS.get(_device_tree(root, "chassis-type") or "")
    if word:
        notes.found("chassis", "device tree")
        return word
    notes.missing("chassis", "neither DMI nor a device tree names the kind of case")
    return None


def hypervisor(root: Path, notes: Notes) -> str | None:
    """Return what the machine runs on: "none" where the processor is its own, "unnamed" where nothing names it.

    Only the technology is named, and the kernel is asked before DMI: the answer is the same without DMI. None
    where nothing tells.
    """
    for source, words in _kernel_words(root):
        kind = _named(words or "")
        if kind:
            notes.found("hypervisor", source)
            return kind
    flags = re.search(r"^flags\s*:(.*)$", evidence.text(root / "proc/cpuinfo") or "", re.M)
    # Vendors of hypervisors sell machines too, and clouds rent out whole ones.
    own = "hypervisor" not in flags[1].split() if flags else ".metal" in _dmi_words(root)
    kind = None if own else _named(_dmi_words(root))
    if kind is None and not flags and not product_name(root, Notes()):
        notes.missing("hypervisor", "nothing tells whether this machine is a virtual one")
        return None
    notes.found("hypervisor", "DMI" if kind else "/proc/cpuinfo" if flags else "what names the machine")
    return kind or ("unnamed" if flags and not own else "none")


def dmi(root: Path, name: str) -> str | None:
    """Return what DMI says under `name`, on one line; None where it is absent, forbidden or a placeholder."""
    value = evidence.line(root / DMI / name) or evidence.line(root / DMI_ELSEWHERE / name) or ""
    return None if is_placeholder(value) else value


def cloud_data(root: Path) -> dict[str, Any]:
    """Return what cloud-init wrote at this boot of the instance it runs in; empty where it did not."""
    try:
        data = json.loads(evidence.text(root / CLOUD_INIT) or "null")
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _names(root: Path) -> Iterator[tuple[str, str | None]]:
    yield "/sys/class/dmi/id", _dmi_name(root)
    yield "device tree", _device_tree(root, "model")
    yield "/proc/cpuinfo", _cpuinfo_name(root)


def _dmi_name(root: Path) -> str | None:
    product, board = dmi(root, "product_name"), dmi(root, "board_name")
    name = _with_vendor(dmi(root, "sys_vendor"), product) or _with_vendor(dmi(root, "board_vendor"), board)
    kind = _instance_type(root)
    return f"{name} ({kind})" if name and kind and kind not in name else name


def _with_vendor(vendor: str | None, product: str | None) -> str | None:
    known = vendor and product and not product.lower().startswith(vendor.lower())
    return f"{vendor} {product}" if known else product


def _instance_type(root: Path) -> str | None:
    """Return the instance type that a cloud's own data name; DMI does so on Amazon only."""
    source = cloud_data(root).get("ds")
    meta = source.get("meta_data") if isinstance(source, dict) else None
    imds = meta.get("imds") if isinstance(meta, dict) else None
    compute = imds.get("compute") if isinstance(imds, dict) else None
    candidates = (
        meta.get("instance-type") if isinstance(meta, dict) else None,
        compute.get("vmSize") if isinstance(compute, dict) else None,
    )
    return next((kind for kind in candidates if isinstance(kind, str) and re.fullmatch(r"[\w.-]{1,60}", kind)), None)


def _device_tree(root: Path, name: str) -> str | None:
    value = next((words for tree in DEVICE_TREES if (words := evidence.line(root / tree / name))), "")
    return None if is_placeholder(value) else value


def _cpuinfo_name(root: Path) -> str | None:
    """Return the board that old kernels of ARM boards name; `Model` says more than the chip under `Hardware`."""
    content = evidence.text(root / "proc/cpuinfo") or ""
    for key in ("Model", "Hardware"):
        listed = re.search(rf"^{key}\s*:[ \t]*(.+)$", content, re.M)
        if listed and not is_placeholder(listed[1]):
            return evidence.short(listed[1])
    return None


def _kernel_words(root: Path) -> Iterator[tuple[str, str | None]]:
    """Yield source and words of what only a guest's kernel shows."""
    yield "/sys/hypervisor/type", evidence.text(root / "sys/hypervisor/type")
    yield "/proc/sys/kernel/osrelease", _wsl(root)
    yield "clock sources", evidence.text(root / CLOCK_SOURCES)
    yield "device tree", _device_tree(root, "hypervisor/compatible")
    yield "/proc/sysinfo", _control_program(root)


def _wsl(root: Path) -> str | None:
    release = (evidence.text(root / "proc/sys/kernel/osrelease") or "").lower()
    return "wsl" if "microsoft" in release else None


def _control_program(root: Path) -> str | None:
    """Return what runs an s390 guest ("KVM/Linux", "z/VM 7.2.0")."""
    listed = re.search(r"^VM00 Control Program:\s*(.+)$", evidence.text(root / "proc/sysinfo") or "", re.M)
    return listed[1] if listed else None


def _dmi_words(root: Path) -> str:
    return " ".join(dmi(root, name) or "" for name in ("sys_vendor", "product_name", "board_vendor", "bios_vendor"))


def _named(words: str) -> str | None:
    return next((kind for sign, kind in HYPERVISORS if sign in words.lower()), None)
