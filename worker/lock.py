"""One benchmark at a time per machine: a file lock that every user, cluster and terminal of it meets."""

import contextlib
import errno
import fcntl
import getpass
import json
import os
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from schema.errors import HostError

DIRECTORIES = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - it must be shared by all users
FILE_NAME = "tokfleet-host.lock"
WAIT_SECONDS = 24 * 3600.0
"""So long a measurement waits for the machine."""

POLL_SECONDS = 0.25
MAX_BYTES = 4096
MAX_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the lock, as that process wrote it down: None where the file does not say (yet)."""

    pid: int | None = None
    user: str | None = None
    host: str | None = None
    since: str | None = None
    what: str | None = None

    def describe(self) -> str:
        """Return who it is in words."""
        if self.pid is None:
            return "another process that has not said who it is"
        what = f", {self.what}" if self.what else ""
        return f"process {self.pid} of {self.user or '?'} on {self.host or '?'} since {self.since or '?'}{what}"


class HostLock:
    """The lock of this machine; the kernel frees it when the process that holds it ends in any way.

    The file is `path`, else $TOKFLEET_LOCK, else one in the first usable shared directory. `what` is
    told to those who wait. The descriptor is closed on exec, so a measuring process never inherits it.
    Usable in `with`, which releases it.
    """

    def __init__(self, path: Path | None = None, what: str = "") -> None:
        given = path or os.environ.get("TOKFLEET_LOCK")
        self._paths = (Path(given),) if given else tuple(directory / FILE_NAME for directory in DIRECTORIES)
        self._what = what
        self._descriptor: int | None = None

    def try_acquire(self, what: str | None = None) -> Holder | None:
        """Take the lock and return None, or return who holds it, at once; `what` replaces the text for others.

        Raises HostError when no lock file can be used at all.
        """
        if self._descriptor is not None:
            raise HostError("This process already holds the machine's benchmark lock; release it first.")
        self._what = self._what if what is None else what
        while True:
            path, descriptor = self._open()
            holder = _lock(path, descriptor)
            if holder is None and _is_still(path, descriptor):
                _write(descriptor, _myself(self._what))
                self._descriptor = descriptor
                return None
            os.close(descriptor)
            if holder is not None:
                return holder
            # Someone cleaned the directory in between: the lock on a deleted file locks nobody out.

    def acquire(self, wait_seconds: float = 0.0, told: Callable[[Holder], None] | None = None) -> "HostLock":
        """Take the lock and return it, waiting at most `wait_seconds`.

        `told` is called with the holder when waiting begins, and again when another one has taken
        over. Raises HostError when the time is up, or when no lock file can be used at all.
        """
        deadline = time.monotonic() + wait_seconds
        last: Holder | None = None
        while (holder := self.try_acquire()) is not None:
            if told is not None and holder != last:
                told(holder)
            last = holder
            left = deadline - time.monotonic()
            if left <= 0:
                raise HostError(
                    f"The machine is still in use after waiting {wait_seconds:g} s: its benchmark lock is held by "
                    f"{holder.describe()}. Wait until it has finished, or allow a longer wait."
                )
            time.sleep(min(POLL_SECONDS, left))
        return self

    def release(self) -> None:
        """Give the lock up; nothing happens if it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        # Closing alone would leave it to a process that is just being started and holds a copy until its exec.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def __enter__(self) -> "HostLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _open(self) -> tuple[Path, int]:
        """Return the first usable file, open."""
        faults = []
        for path in self._paths:
            try:
                return path, _open_shared(path)
            except OSError as error:
                faults.append(f"{path} ({error.strerror or error})")
        raise HostError(
            f"No benchmark lock can be kept on this machine: {', '.join(faults)}. "
            "Set TOKFLEET_LOCK to a file that all who measure here can write."
        )


def peek(path: Path | None = None) -> Holder | None:
    """Return who holds the lock of this machine, without taking it or making its file; None where nobody does."""
    for candidate in HostLock(path)._paths:
        try:
            descriptor = os.open(candidate, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(descriptor)
        except OSError:
            continue
        finally:
            os.close(descriptor)
    return None


def _lock(path: Path, descriptor: int) -> Holder | None:
    """Return None when the lock is now ours, else who holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise HostError(
            f"{path} cannot be locked ({error.strerror}). Set TOKFLEET_LOCK to a file on a local disk."
        ) from error
    return None


def _open_shared(path: Path) -> int:
    """Return a descriptor of the file, made now with mode 0666 if it was not there.

    Links are refused, because anyone may put one into a shared directory. O_CREAT is used only for a
    new file: Linux refuses it on others' files in sticky directories (sysctl fs.protected_regular).
    """
    for _ in range(10):
        try:
            return _checked(_open_existing(path))
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)
        return descriptor
    raise FileNotFoundError(errno.ENOENT, "it is made and deleted again and again")


def _open_existing(path: Path) -> int:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, os.O_RDWR | flags)
    except PermissionError:
        # Enough to lock it, not to say who we are.
        return os.open(path, os.O_RDONLY | flags)


def _checked(descriptor: int) -> int:
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a plain file of its own")


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


def _myself(what: str) -> Holder:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Holder(pid=os.getpid(), user=user, host=socket.gethostname(), since=since, what=what[:MAX_TEXT] or None)


def _write(descriptor: int, holder: Holder) -> None:
    content = json.dumps(asdict(holder)).encode()
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)


def _read(descriptor: int) -> Holder:
    """Return what the holder wrote; it may be in the middle of writing, or not allowed to."""
    try:
        values = json.loads(os.pread(descriptor, MAX_BYTES, 0))
        return Holder(
            pid=int(values["pid"]),
            user=_printable(values["user"]),
            host=_printable(values["host"]),
            since=_printable(values["since"]),
            what=_printable(values["what"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return Holder()


def _printable(value: object) -> str | None:
    """Return the text without control characters: any user may have written it, and it goes to a terminal."""
    return "".join(c for c in value if c.isprintable())[:MAX_TEXT] if isinstance(value, str) else None
