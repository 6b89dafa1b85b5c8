"""What is sent to a machine that has nothing of ours: the first words for its Python, and our packages."""

import functools
import hashlib
import io
import zipfile
from pathlib import Path

from worker.variables import REPOSITORY

PACKAGES = ("schema", "worker")
MODULES = ("orchestrator/__init__.py", "orchestrator/on_host.py")
"""Of the orchestrator only what is asked of hosts, which imports nothing else of it."""

LEAST_PYTHON = (3, 11)
MOMENT = (2020, 1, 1, 0, 0, 0)

FIRST = "exec(open(0,'rb',0,closefd=False).readline())"
"""The program that a far Python is started with; the rest of it is the first line that it is sent."""

_SECOND = """
import os, sys
def line():
    with open(0, "rb", 0, closefd=False) as stdin:
        return stdin.readline().strip()
def content(n):
    parts = []
    while n:
        part = os.read(0, min(n, 1 << 20))
        if not part:
            sys.exit("the pipe was closed")
        parts.append(part)
        n -= len(part)
    return b"".join(parts)
if sys.version_info < LEAST:
    sys.exit("%s is Python %d.%d, and %d.%d or newer is needed" % ((sys.executable,) + sys.version_info[:2] + LEAST))
data = content(int(line()))
import io, shutil, tempfile, zipfile
base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tokfleet")
code = os.path.join(base, "code-" + DIGEST)
if not os.path.isdir(code):
    try:
        os.makedirs(base, 0o700, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=base)
    except OSError:
        fresh = code = tempfile.mkdtemp(prefix="tokfleet-")
    zipfile.ZipFile(io.BytesIO(data)).extractall(fresh)
    if fresh != code:
        try:
            os.rename(fresh, code)
        except OSError:
            shutil.rmtree(fresh)
sys.path.insert(0, code)
from worker.far import main
main()
"""


@functools.cache
def archive() -> bytes:
    """Return our packages as a zip archive, byte for byte the same for the same code."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for path in _modules():
            entry = zipfile.ZipInfo(path.relative_to(REPOSITORY).as_posix(), MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            target.writestr(entry, path.read_bytes())
    return packed.getvalue()


def preamble() -> bytes:
    """Return what a Python started with FIRST is sent before anything else: its program, and the archive."""
    data = archive()
    digest = hashlib.sha256(data).hexdigest()[:24]
    second = f"LEAST = {LEAST_PYTHON!r}\nDIGEST = {digest!r}\n{_SECOND}"
    return f"exec({second!a})\n{len(data)}\n".encode("ascii") + data


def _modules() -> list[Path]:
    found = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    return sorted([*found, *(REPOSITORY / name for name in MODULES)])
