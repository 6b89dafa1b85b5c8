"""What the processor sits in: the product, board or cloud instance type, and the hypervisor if there is one."""

import re
from pathlib import Path

from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

DMI = Path("sys/class/dmi/id")
DMI_ELSEWHERE = Path("sys/devices/virtual/dmi/id")
DEVICE_TREE = Path("proc/device-tree")

PLACEHOLDERS = re.compile(
    r"(default string|to be filled by o\.?e\.?m\.?|none|not specified|not applicable|system product name"
    r"|system manufacturer|system version|unknown|o\.?e\.?m\.?|undefined|product name|0+|f+|x+|-)?",
    re.I,
)
HYPERVISORS = (
    ("amazon", "kvm (Amazon EC2)"),
    ("google", "kvm (Google)"),
    ("qemu", "qemu"),
    ("kvm", "kvm"),
    ("vmware", "vmware"),
    ("innotek", "virtualbox"),
    ("virtualbox", "virtualbox"),
    ("xen", "xen"),
    ("microsoft", "hyper-v"),
    ("parallels", "parallels"),
    ("bochs", "bochs"),
    ("openstack", "kvm (OpenStack)"),
    ("nutanix", "kvm (Nutanix)"),
)


def product_name(root: Path, notes: Notes) -> str | None:
    """Return vendor and product as the firmware names them; None where it holds only placeholders."""
    vendor, product = (_dmi(root, name) for name in ("sys_vendor", "product_name"))
    if product:
        notes.found("product_name", "/sys/class/dmi/id")
        known = vendor and not product.lower().startswith(vendor.lower())
        return f"{vendor} {product}" if known else product
    board = evidence.first_text([root / DEVICE_TREE / "model", root / "sys/firmware/devicetree/base/model"])
    if board:
        notes.found("product_name", "device tree")
        return " ".join(board[0].split())
    listed = re.search(r"^(?:Model|Hardware)\s*:\s*(.+)$", evidence.text(root / "proc/cpuinfo") or "", re.M)
    if listed:
        notes.found("product_name", "/proc/cpuinfo")
        return " ".join(listed[1].split())
    notes.missing("product_name", "neither DMI nor a device tree names the machine")
    return None


def hypervisor(root: Path, notes: Notes) -> str | None:
    """Return what the machine runs on where it is a virtual one (`unknown` if that is unnamed), else None."""
    kind = evidence.text(root / "sys/hypervisor/type")
    if kind:
        notes.found("hypervisor", "/sys/hypervisor/type")
        return kind
    if not re.search(r"^flags\s*:.* hypervisor( |$)", evidence.text(root / "proc/cpuinfo") or "", re.M):
        return None
    notes.found("hypervisor", "/proc/cpuinfo and DMI")
    if "microsoft" in (evidence.text(root / "proc/sys/kernel/osrelease") or "").lower():
        return "wsl"
    words = " ".join(_dmi(root, name) or "" for name in ("sys_vendor", "product_name", "board_vendor")).lower()
    return next((name for sign, name in HYPERVISORS if sign in words), "unknown")


def _dmi(root: Path, name: str) -> str | None:
    found = evidence.first_text([root / DMI / name, root / DMI_ELSEWHERE / name])
    value = " ".join(found[0].split()) if found else ""
    return None if PLACEHOLDERS.fullmatch(value) else value
