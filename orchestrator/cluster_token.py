"""The token of a lab: the file that Ray reads it from, made so that only its owner can."""

import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from schema.errors import ClusterError, HostError

TOKEN = re.compile(r"[A-Za-z0-9_.~+/=-]{16,512}")
WIDER = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPlace:
    """Where Ray finds this user's token: a variable that holds it, or a file; `mode` is the file's, None without."""

    path: Path | None
    mode: int | None = None
    is_usable: bool = False

    @property
    def is_private(self) -> bool:
        """Whether nobody else can read it."""
        return self.path is None or (self.mode is not None and not self.mode & WIDER)

    def describe(self) -> str:
        """Return the place in words."""
        return "the variable RAY_AUTH_TOKEN" if self.path is None else str(self.path)


def token_path() -> Path:
    """Return the file that Ray reads the token from: $RAY_AUTH_TOKEN_PATH, else ~/.ray/auth_token."""
    if chosen := os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return Path(chosen)
    try:
        return Path.home() / ".ray" / "auth_token"
    except RuntimeError as error:
        raise HostError(
            "This user has no home directory for Ray's token. Set RAY_AUTH_TOKEN_PATH to a file of your own."
        ) from error


def find_token() -> TokenPlace:
    """Return where the token is; `is_usable` says whether there is one."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return TokenPlace(path=None, is_usable=True)
    path = token_path()
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="utf-8")[:1000].strip()
    except (OSError, UnicodeDecodeError):
        return TokenPlace(path=path)
    return TokenPlace(path=path, mode=mode, is_usable=bool(text))


def required_token(what: str) -> TokenPlace:
    """Return where the token is; raises ClusterError where there is none, since `what` must not be without."""
    place = find_token()
    if not place.is_usable:
        raise ClusterError(
            f"{what} needs the lab's token, and there is none in {place.describe()}: without it anyone who reaches "
            "this machine could run programs on it. Make one on the head with `tokfleet cluster token`, and bring it "
            "to each host with `ssh HEAD cat .ray/auth_token | tokfleet cluster token --stdin`."
        )
    if not place.is_private:
        raise ClusterError(
            f"Others on this machine can read the lab's token: {place.describe()} has mode {place.mode:04o}. "
            f"Run `chmod 600 {place.path}`, or `tokfleet cluster token --new` where somebody may have read it."
        )
    return place


def make_token(text: str | None = None, new: bool = False) -> tuple[Path, bool]:
    """Keep `text`, or a token made now, where Ray reads it, with mode 0600; return the file and whether it is new.

    One that is there stays, made private, unless `new` or `text` says otherwise. Raises ClusterError for a text
    that can be no token, HostError where the file cannot be written.
    """
    if text is not None and not TOKEN.fullmatch(text):
        raise ClusterError("What was given is no token: 16 to 512 letters, digits and signs without a blank are one.")
    path = token_path()
    try:
        if find_token_in(path) and text is None and not new:
            path.chmod(0o600)
            return path, False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_private(path, text or secrets.token_hex(32))
    except OSError as error:
        raise HostError(
            f"The token cannot be kept in {path}: {error.strerror or error}. Set RAY_AUTH_TOKEN_PATH to another file."
        ) from error
    return path, True


def find_token_in(path: Path) -> bool:
    """Return whether the file at `path` has a token."""
    try:
        return bool(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False


def _write_private(path: Path, text: str) -> None:
    """Write a new file that was never readable for others, and put it in place of the old one."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)  # no line end: Ray compares what the file holds
    beside.replace(path)
