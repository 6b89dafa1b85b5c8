"""A store in PostgreSQL: a connection to it, its revision, its errors in plain words (psycopg, without SQLAlchemy)."""

from typing import TYPE_CHECKING, Any

from orchestrator.revision import ELSEWHERE, Revisions, check_revision
from orchestrator.store_url import libpq_url, shown
from schema.errors import StoreError, StoreUnavailableError
from schema.revisions import REVISIONS

if TYPE_CHECKING:
    import psycopg

LOCK = int.from_bytes(b"tokfleet")
"""The advisory lock under which a store is written: one transaction at a time, as on SQLite."""

LOCK_SECONDS = 30
_DEFAULTS = {
    "application_name": "tokfleet",
    "client_encoding": "utf8",
    # A server that is gone is noticed within seconds, not after the two hours of TCP's own.
    "connect_timeout": "3",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_WORDS = {
    "08": f"the connection to it was lost. Try again; {ELSEWHERE}",
    "25006": "it may only be read, as a standby server may. Connect to the one that takes rows.",
    "28": f"it does not let this user in. Correct user, password or pg_hba.conf; {ELSEWHERE}",
    "3D": "there is no database of this name on the server. Make it: createdb --encoding=UTF8 NAME",
    "40": "another program changed the same rows at the same moment. Try again.",
    "42501": "this user may not do that there. Let its owner GRANT it, or connect as the owner.",
    "42P01": "it is not whole: {message}. `tokfleet db upgrade` makes its views anew.",
    "42703": "it is not whole: {message}. `tokfleet db upgrade` makes its views anew.",
    "53100": "the server's disk is full. Make room there.",
    "53300": "the server has no connection left. Close some, or raise its max_connections.",
    "53": "the server is out of resources: {message}.",
    "55P03": f"another program has held its lock for over {LOCK_SECONDS} s. Try again when that is done.",
    "57014": "the server cancelled the statement, as its statement_timeout says: {message}.",
    "57": "the server is stopping or starting. Try again.",
    "25P03": "the server ended the connection, which had waited too long. Try again.",
    "58": "the server's disk failed to read or write: {message}. Look at its log.",
    "XX": "it is damaged: {message}. Look at the server's log, and restore a backup.",
}
"""Trouble of the database, not of the rows, by the start of the SQLSTATE; the longest one that fits counts."""

_PASSING = ("08", "40001", "40P01", "57P01", "57P02", "57P03", "25P03")
"""A transaction that failed so may well succeed when it is done anew as a whole."""


def connect(url: str, read_only: bool = False) -> "psycopg.Connection[Any]":
    """Return a connection to the database at `url`; with `read_only` every transaction of it is READ ONLY.

    What the URL's query says goes before the defaults. Raises StoreError where psycopg is missing or
    the URL is none, psycopg.Error where the server does not answer.
    """
    connection: psycopg.Connection[Any] = _psycopg(url).connect(**parameters(url))
    connection.read_only = read_only or None
    if read_only:
        connection.prepare_threshold = None  # a prepared SELECT of a view does not outlive the view
    return connection


def store_error(url: str, error: "psycopg.Error") -> StoreError:
    """Return `error` of the database at `url` in plain words.

    It is a StoreUnavailableError where the trouble is the database's, not that of the rows.
    """
    name, state = shown(url), error.sqlstate or ""
    message = _first_line(error)
    if not state and _is_of_the_connection(error):
        return StoreUnavailableError(
            f"The database {name} cannot be reached: {message}. Start the server, make the database (createdb), or "
            f"correct user and password; {ELSEWHERE}"
        )
    if state == "2BP01":
        detail = str(error.diag.message_detail or message).splitlines()[0].rstrip(".")
        return StoreError(f"The database {name} was not changed, since something there is built on it: {detail}. "
                          "Drop that, and make it again afterwards.")  # fmt: skip
    words = next((_WORDS[start] for start in sorted(_WORDS, key=len, reverse=True) if state.startswith(start)), None)
    if words is not None and state:
        return StoreUnavailableError(f"The database {name} cannot be used: {words.replace('{message}', message)}")
    return StoreError(f"The database {name} refused what was to be written: {message}.")


def is_passing(error: BaseException | None) -> bool:
    """Return whether a transaction that failed so may succeed when it is done anew at once."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return False
    return error.sqlstate.startswith(_PASSING) if error.sqlstate else _is_of_the_connection(error)


def revisions(connection: "psycopg.Connection[Any]") -> Revisions:
    """Return the rows of the version table, () where tables lack one, None where there is no table at all."""
    found = tables(connection)
    if "alembic_version" in found:
        return tuple(str(row[0]) for row in connection.execute("SELECT version_num FROM alembic_version"))
    return () if found else None


def tables(connection: "psycopg.Connection[Any]") -> set[str]:
    """Return the names of the tables in the schema that is written to, without those of extensions."""
    query = (
        "SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND NOT EXISTS "
        "(SELECT 1 FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype = 'e')"
    )
    return {str(row[0]) for row in connection.execute(query)}


def made_by(connection: "psycopg.Connection[Any]") -> str | None:
    """Return which tokfleet made or last upgraded the store, None where it does not say so."""
    if connection.execute("SELECT to_regclass('schema_info')").fetchall() == [(None,)]:
        return None
    row = connection.execute("SELECT tokfleet_version FROM schema_info").fetchone()
    return str(row[0]) if row else None


def check_connection(url: str, connection: "psycopg.Connection[Any]", known: tuple[str, ...] = REVISIONS) -> None:
    """Raise StoreError unless the database that `connection` leads to is a store of the newest revision."""
    check_revision(shown(url), revisions(connection), lambda: made_by(connection), known)


def check_store(url: str) -> None:
    """Raise StoreError in plain words unless there is a store at `url` that this code can read."""
    import_error = _psycopg(url).Error
    try:
        with connect(url, read_only=True) as connection:
            check_connection(url, connection)
    except import_error as error:
        raise store_error(url, error) from error


def is_empty(url: str) -> bool:
    """Return whether the database at `url` is still to become a store: it has no tables."""
    import_error = _psycopg(url).Error
    try:
        with connect(url, read_only=True) as connection:
            return revisions(connection) is None
    except import_error as error:
        raise store_error(url, error) from error


def check_place(url: str) -> None:
    """Raise StoreError where no store can be made in the database at `url`, such as one that does not keep UTF-8."""
    import_error = _psycopg(url).Error
    try:
        with connect(url, read_only=True) as connection:
            encoding = connection.info.parameter_status("server_encoding")
            place = connection.execute("SELECT current_schema()").fetchall()
    except import_error as error:
        raise store_error(url, error) from error
    if encoding != "UTF8":
        raise StoreError(
            f"The database {shown(url)} keeps texts as {encoding}, not as UTF-8, which names and logs need. "
            "Make another one: createdb --template=template0 --encoding=UTF8 NAME"
        )
    if place == [(None,)]:
        raise StoreError(
            f"The database {shown(url)} has no schema on this user's search_path. Make one, or correct it."
        )


def parameters(url: str) -> dict[str, Any]:
    """Return the parameters of a connection to the database at `url`, by the names that libpq has for them.

    Raises StoreError where it is no URL; what libpq says of one may hold a password, and is not told.
    """
    psycopg = _psycopg(url)
    from psycopg.conninfo import conninfo_to_dict

    try:
        said = conninfo_to_dict(libpq_url(url))
    except psycopg.Error:
        raise StoreError(
            f"The store {shown(url)} is no PostgreSQL URL. Write postgresql://USER:PASSWORD@HOST:5432/NAME, "
            "with %40 for @, %3A for : and %2F for / in names and passwords."
        ) from None
    return _DEFAULTS | said


def _psycopg(url: str) -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise StoreError(
            f"The store {shown(url)} is a PostgreSQL database, for which psycopg is missing here ({error}). "
            "Install it: pip install 'tokfleet[postgres]'"
        ) from None
    return psycopg


def _is_of_the_connection(error: "psycopg.Error") -> bool:
    import psycopg

    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _first_line(error: "psycopg.Error") -> str:
    """Return what the server or the connection says, on one line, without the statement and its values."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).removeprefix("connection failed: ").rstrip(".")
