"""The address of a store: what kind of database it names, and what of it people may see (standard library only)."""

import re
from urllib.parse import parse_qs, urlsplit

from schema.errors import StoreError

_PORT = 5432


def is_postgres(url: str) -> bool:
    """Return whether `url` names a PostgreSQL database: `postgresql://…`, also with `+psycopg`."""
    scheme, found, _ = url.partition("://")
    return bool(found) and scheme.partition("+")[0] in ("postgresql", "postgres")


def libpq_url(url: str) -> str:
    """Return `url` as PostgreSQL's own programs understand it; StoreError where it asks for another driver."""
    scheme, _, rest = url.partition("://")
    driver = scheme.partition("+")[2]
    if driver not in ("", "psycopg"):
        raise StoreError(f"The store {scheme}://… asks for {driver}, which is not used here. Write postgresql://….")
    return f"postgresql://{rest}"


def shown(url: str) -> str:
    """Return the database as people may see it: the file of SQLite, any other URL without its passwords."""
    if url.startswith("sqlite:///"):
        return url.removeprefix("sqlite:///")
    without = re.sub(r"(://[^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&#]*", r"\1***", without)


def identity(url: str) -> str:
    """Return what names the database itself, whoever connects to it: of PostgreSQL no user, password or option."""
    if not is_postgres(url):
        return url
    try:
        parts = urlsplit(libpq_url(url))
        said = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    except ValueError:
        return shown(url)
    user, _, place = parts.netloc.rpartition("@")
    place = (place or said.get("host", "")).lower()
    port = "" if re.search(r":\d+$", place) else f":{said.get('port', _PORT)}"
    database = parts.path.lstrip("/") or said.get("dbname") or user.partition(":")[0]
    return f"postgresql://{place}{port}/{database}"
