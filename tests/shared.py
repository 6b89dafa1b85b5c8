"""Inputs beside the checkout, not in it: recorded machines and small cases. Without them their tests are skipped."""

import subprocess
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[1].parent / "shared"
CASES = SHARED / "cases"
DUMPS = SHARED / "hardware-dumps" / "dumps.tar.xz"

needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")


def unpacked(target: Path, *wanted: str, check: bool = True) -> Path:
    """Unpack the `wanted` files of the recorded machines into `target` and return it.

    Unless `check`, a pattern that matches nothing is no error.
    """
    if not DUMPS.exists():
        pytest.skip("the recorded machines are not beside this checkout")
    # GNU tar does in seconds what tarfile does in a minute: there are 143 000 members.
    command = ["tar", "-xJf", str(DUMPS), "-C", str(target), "--wildcards", *wanted]
    subprocess.run(command, check=check, capture_output=not check)
    return target
