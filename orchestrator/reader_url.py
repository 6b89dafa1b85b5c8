"""As whom `tokfleet sql` asks a PostgreSQL database: a role that may only read, and where its URL is kept.

That is TOKFLEET_DB_READER, else a file in tokfleet's home that only this user can read, else the database's own URL.
(standard library only)
"""

import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from orchestrator.store_url import identity, libpq_url
from schema.canonical import digest
from schema.errors import StoreError

VARIABLE = "TOKFLEET_DB_READER"


@dataclass(frozen=True, slots=True)
class Reader:
    """A URL to ask by, and where it was found: the variable's name, a path, or None for the database's own."""

    url: str
    found_in: str | None


def chosen(url: str, home: Path) -> Reader:
    """Return by which URL to ask the database at `url`.

    Raises StoreError where the file that keeps it can be read by others, or not by this user.
    """
    if said := os.environ.get(VARIABLE):
        return Reader(said, VARIABLE)
    path = place(url, home)
    kept = kept_in(path)
    return Reader(kept, str(path)) if kept else Reader(url, None)


def place(url: str, home: Path) -> Path:
    """Return the file that keeps the reader's URL of the database at `url`, whoever connects to that."""
    return home / f"reader-{digest(identity(url))[:12]}.url"


def kept_in(path: Path) -> str | None:
    """Return the URL that the file keeps; None where there is no file."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise StoreError(
                f"The file {path} holds a password and can be read by others. Take that away: chmod 600 it."
            )
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"The file {path}, which says who may read the database, cannot be read: {error}.") from error


def keep(url: str, path: Path) -> None:
    """Write `url` to `path`, whole, for this user alone; OSError where that cannot be."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(url + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def of_user(url: str, user: str, password: str) -> str:
    """Return the URL of the same database for another user."""
    parts = urlsplit(libpq_url(url))
    server = parts.netloc.rpartition("@")[2]
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("user", "password", "passfile")]
    asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@{server}{parts.path}{asked}"


def password_of(url: str) -> str | None:
    """Return the password in a URL that `of_user` made."""
    password = urlsplit(url).password
    return None if password is None else unquote(password)


def user_of(url: str) -> str:
    """Return the user in a URL, `this user` where there is none."""
    return urlsplit(url).username or "this user"


def role_name(database: str) -> str:
    """Return the name of the role that may only read `database`: roles belong to all databases of a server."""
    readable = database if re.fullmatch(r"[\w-]{1,40}", database, re.ASCII) else digest(database)[:16]
    return f"tokfleet_reader_{readable}"
