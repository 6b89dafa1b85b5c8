"""The role of PostgreSQL that may only read a store: made by the owner, refused where it may do more (psycopg)."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import postgres, reader_url
from orchestrator.store_url import shown
from schema.errors import SqlError, StoreError

if TYPE_CHECKING:
    import psycopg

CONNECTIONS = 50
_SETTINGS = {
    "default_transaction_read_only": "on",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "10min",
    "client_connection_check_interval": "2s",
    "jit": "off",
}
"""What holds for whoever connects as it, a dashboard too; compiling a view's joins takes longer than asking it."""

_BY_A_SUPERUSER = {"temp_file_limit": "4GB"}

_MIGHT_WRITE = """
SELECT role.rolsuper OR role.rolcreaterole OR role.rolreplication OR role.rolbypassrls,
    EXISTS (
        SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND c.relkind IN ('r', 'p', 'v', 'm')
        AND (pg_has_role(c.relowner, 'MEMBER') OR has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'))
    ),
    EXISTS (
        SELECT 1 FROM pg_roles AS other
        WHERE other.rolname IN ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program',
            'pg_signal_backend', 'pg_write_all_data') AND pg_has_role(other.oid, 'MEMBER')
    )
FROM pg_roles AS role WHERE role.rolname = session_user"""


def see_to_reader(url: str, home: Path, renew: bool = False) -> str | None:
    """See to it that there is a role that may read the store at `url` and nothing else, and that we can be it.

    `url` is the owner's. The password is new where the role is, or with `renew`; it is kept in `home`, for this user
    alone. Returns a sentence where the person has to know or to do something, None where all is as it was.
    Raises StoreError in plain words, OSError where the password cannot be kept.
    """
    import psycopg

    try:
        with postgres.connect(url) as connection:
            return make_reader(connection, url, home, renew)
    except psycopg.Error as error:
        raise postgres.store_error(url, error) from error


def make_reader(connection: "psycopg.Connection[Any]", url: str, home: Path, renew: bool = False) -> str | None:
    """Do what `see_to_reader` says on the owner's connection, in a transaction of the caller's."""
    import psycopg

    database = _one(connection, "SELECT current_database()")
    name, path = reader_url.role_name(database), reader_url.place(url, home)
    exists = bool(_one(connection, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s)", name))
    kept = reader_url.kept_in(path)
    try:
        if not exists or renew:
            password = (reader_url.password_of(kept) if kept and not renew else None) or secrets.token_urlsafe(24)
            with connection.transaction():
                _set_password(connection, name, password, exists)
            reader_url.keep(reader_url.of_user(url, name, password), path)
    except psycopg.errors.InsufficientPrivilege:
        return _to_an_administrator(name, url, exists)
    _grant(connection, name, database)
    if not exists or renew:
        return f"`tokfleet sql` asks as the role {name}, which may only read. Its password is kept in {path}."
    return None if kept else _not_kept(name, path)


def check_reader(connection: "psycopg.Connection[Any]", reader: reader_url.Reader) -> None:
    """Raise SqlError where whoever is connected could change anything, or read the server's files."""
    found = connection.execute(_MIGHT_WRITE).fetchone()
    if found is not None and not any(found):
        return
    user = _one(connection, "SELECT session_user")
    if reader.found_in is not None:
        raise SqlError(f"The role {user} of {reader.found_in} may do more than read, so no question is asked as it. "
                       "Give there a role that may only read: `tokfleet db reader --renew` makes one.")  # fmt: skip
    raise SqlError(
        f"The role {user} may do more than read {shown(reader.url)}, so no question is asked as it. "
        "`tokfleet db upgrade` makes a role that may only read; if another machine made it, "
        f"set {reader_url.VARIABLE} to that one's URL."
    )


def _set_password(connection: "psycopg.Connection[Any]", name: str, password: str, exists: bool) -> None:
    from psycopg import sql

    # Not the password itself, which the server might log.
    hashed = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
    words = "ALTER ROLE {} PASSWORD {}" if exists else "CREATE ROLE {} LOGIN CONNECTION LIMIT {} PASSWORD {}"
    parts = [sql.Identifier(name), *[sql.Literal(CONNECTIONS)] * (not exists), sql.Literal(hashed)]
    connection.execute(sql.SQL(words).format(*parts))


def _grant(connection: "psycopg.Connection[Any]", name: str, database: str) -> None:
    """Let the role read what this user owns in the store's schema, and hold it to `_SETTINGS` where we may."""
    from psycopg import sql

    role = sql.Identifier(name)
    schema = _one(connection, "SELECT current_schema()")
    owned = connection.execute(
        "SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v') AND pg_has_role(c.relowner, 'USAGE') ORDER BY c.relname",
        (schema,),
    ).fetchall()
    if owned:
        tables = sql.SQL(", ").join(sql.Identifier(schema, str(relation)) for (relation,) in owned)
        connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(tables, role))
    optional = [
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(database), role),
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), role),
        *(
            sql.SQL("ALTER ROLE {} SET {} = {}").format(role, sql.Identifier(setting), sql.Literal(value))
            for setting, value in (_SETTINGS | _BY_A_SUPERUSER).items()
        ),
    ]
    for statement in optional:
        _where_allowed(connection, statement)


def _where_allowed(connection: "psycopg.Connection[Any]", statement: Any) -> None:
    """Run `statement` unless this user may not; it then stays as the administrator has it."""
    import psycopg

    try:
        with connection.transaction():
            connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return


def _to_an_administrator(name: str, url: str, exists: bool) -> str:
    verb = "ALTER ROLE" if exists else "CREATE ROLE"
    return (
        f"The role {name}, as which `tokfleet sql` asks, was not made: this user may not. Let an administrator run "
        f"{verb} {name} LOGIN PASSWORD '…'; then `tokfleet db upgrade` again, and set {reader_url.VARIABLE} to "
        f"{reader_url.of_user(url, name, '')} with that password."
    )


def _not_kept(name: str, path: Path) -> str:
    return (
        f"The role {name}, as which `tokfleet sql` asks, was made by another machine or user. "
        f"Set {reader_url.VARIABLE} to its URL, or copy the file that keeps it to {path}; "
        "`tokfleet db reader --renew` gives it a new password."
    )


def _one(connection: "psycopg.Connection[Any]", query: str, *values: Any) -> Any:
    row = connection.execute(query, values or None).fetchone()
    if row is None:
        raise StoreError(f"The database did not answer {query}.")
    return row[0]
