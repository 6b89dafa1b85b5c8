"""The role that may only read a PostgreSQL store: made by the owner, kept for one user, refused if it may do more."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator import reader_url
from orchestrator.ask import ask
from orchestrator.cli import main
from orchestrator.migrate import upgrade
from orchestrator.postgres import parameters
from orchestrator.reader_role import see_to_reader
from schema.errors import SqlError, StoreError
from tests.postgres import Server

QUESTION = "SELECT COUNT(*) FROM results"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TOKFLEET_DB_READER", raising=False)
    return tmp_path / "home"


@pytest.fixture
def owned(postgres: Server) -> Iterator[str]:
    """Return the URL of an empty database of a user who may make roles and is no superuser."""
    postgres.execute("CREATE ROLE owner_of_runs LOGIN CREATEROLE")
    name = postgres.create()
    postgres.execute(f"ALTER DATABASE {name} OWNER TO owner_of_runs")
    yield postgres.url(name, "owner_of_runs")
    postgres.drop(name)
    postgres.execute(f"DROP ROLE IF EXISTS tokfleet_reader_{name}")
    postgres.execute("DROP ROLE owner_of_runs")


def printed(capsys: Any, *arguments: str, status: int = 0) -> str:
    assert main(list(arguments)) == status, capsys.readouterr().err
    out, err = capsys.readouterr()
    return str(out + err)


def test_an_upgrade_makes_the_reader_once_and_sql_asks_as_it(owned: str, home: Path, capsys: Any) -> None:
    assert "may only read. Its password is kept in" in printed(capsys, "db", "upgrade", "--db", owned)
    assert "reader" not in printed(capsys, "db", "upgrade", "--db", owned)
    assert list(ask(owned, "SELECT COUNT(*) FROM results")) == [(0,)]
    (user,) = ask(owned, "SELECT CAST(session_user AS text)")
    assert str(user[0]).startswith("tokfleet_reader_t")


def test_its_url_is_kept_for_this_user_alone(owned: str, home: Path) -> None:
    upgrade(owned)
    see_to_reader(owned, home)
    path = reader_url.place(owned, home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(StoreError, match="can be read by others"):
        ask(owned, QUESTION)


def test_what_an_upgrade_makes_later_can_be_read_after_it(owned: str, home: Path, postgres: Server) -> None:
    upgrade(owned)
    see_to_reader(owned, home)
    database = owned.partition("@/")[2].partition("?")[0]
    postgres.execute("DROP VIEW probes", database)
    postgres.execute("UPDATE schema_info SET view_hash = 'old'", database)
    upgrade(owned)
    with pytest.raises(StoreError, match=r"may not read probes\. `tokfleet db upgrade`, as the owner, lets it"):
        ask(owned, "SELECT * FROM probes")
    see_to_reader(owned, home)
    assert list(ask(owned, "SELECT * FROM probes")) == []


def test_an_owner_and_a_superuser_are_refused_and_the_command_is_named(
    owned: str, home: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(owned)
    for url in (owned, owned.replace("owner_of_runs@", "postgres@")):
        with pytest.raises(SqlError, match=r"may do more than read .* `tokfleet db upgrade` makes a role"):
            ask(url, QUESTION)
        monkeypatch.setenv("TOKFLEET_DB_READER", url)
        with pytest.raises(
            SqlError, match=r"of TOKFLEET_DB_READER may do more than read.*`tokfleet db reader --renew`"
        ):
            ask(owned, QUESTION)
        monkeypatch.delenv("TOKFLEET_DB_READER")


def test_another_machine_is_told_what_to_do(owned: str, home: Path, tmp_path: Path) -> None:
    upgrade(owned)
    see_to_reader(owned, home)
    said = see_to_reader(owned, tmp_path / "other")
    assert said is not None
    assert "was made by another machine or user. Set TOKFLEET_DB_READER" in said
    assert "may only read" in (see_to_reader(owned, tmp_path / "other", renew=True) or "")


def test_the_variable_names_the_reader(owned: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(owned)
    see_to_reader(owned, tmp_path / "other")
    kept = reader_url.place(owned, tmp_path / "other").read_text().strip()
    monkeypatch.setenv("TOKFLEET_DB_READER", kept)
    assert list(ask(owned, QUESTION)) == [(0,)]
    monkeypatch.delenv("TOKFLEET_DB_READER")
    assert list(ask(kept, QUESTION)) == [(0,)]


def test_the_command_prints_the_readers_url_and_only_that(owned: str, home: Path, capsys: Any) -> None:
    upgrade(owned)
    assert "`tokfleet db upgrade` makes one" in printed(capsys, "db", "reader", "--db", owned, status=1)
    see_to_reader(owned, home)
    url = printed(capsys, "db", "reader", "--db", owned).strip()
    with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connection.execute("DELETE FROM run")
    assert main(["db", "reader", "--renew", "--db", owned]) == 0
    out, err = capsys.readouterr()
    assert out.strip() != url
    assert "Its password is kept in" in err
    assert "an SQLite file, which has no roles" in printed(capsys, "db", "reader", "--db", "x.sqlite", status=2)


def test_who_may_not_make_roles_is_told_what_an_administrator_does(owned: str, home: Path, postgres: Server) -> None:
    postgres.execute("ALTER ROLE owner_of_runs NOCREATEROLE")
    upgrade(owned)
    said = see_to_reader(owned, home)
    assert said is not None
    name = reader_url.role_name(owned.partition("@/")[2].partition("?")[0])
    assert f"CREATE ROLE {name} LOGIN PASSWORD" in said
    assert not reader_url.place(owned, home).exists()
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'chosen'")
    assert "was made by another" in (see_to_reader(owned, home) or "")
    assert list(ask(reader_url.of_user(owned, name, "chosen"), QUESTION)) == [(0,)]


def test_the_password_is_asked_for_where_the_server_asks_for_one(owned: str, home: Path, postgres: Server) -> None:
    upgrade(owned)
    see_to_reader(owned, home)
    rules = postgres.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    name = reader_url.role_name(owned.partition("@/")[2].partition("?")[0])
    rules.write_text(f"local all {name} scram-sha-256\n{before}")
    try:
        postgres.execute("SELECT pg_reload_conf()")
        assert list(ask(owned, QUESTION)) == [(0,)]
        path = reader_url.place(owned, home)
        path.write_text(reader_url.of_user(owned, name, "wrong"))
        with pytest.raises(StoreError, match=f"asks as {name}, as .* says; `tokfleet db reader --renew`"):
            ask(owned, QUESTION)
        see_to_reader(owned, home, renew=True)
        assert list(ask(owned, QUESTION)) == [(0,)]
    finally:
        rules.write_text(before)
        postgres.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:pw@db.lab:5433/runs", "postgresql://you:s%2Fx@db.lab:5433/runs"),
        ("postgresql+psycopg://me@/runs?host=/run/pg", "postgresql://you:s%2Fx@/runs?host=%2Frun%2Fpg"),
        ("postgresql:///runs?host=/run/pg&user=me&password=pw", "postgresql://you:s%2Fx@/runs?host=%2Frun%2Fpg"),
        ("postgres://[::1]/runs?sslmode=require", "postgresql://you:s%2Fx@[::1]/runs?sslmode=require"),
    ],
)
def test_the_url_of_another_user_leads_to_the_same_database(url: str, expected: str) -> None:
    made = reader_url.of_user(url, "you", "s/x")
    assert made == expected
    assert reader_url.password_of(made) == "s/x"
    assert parameters(made)["password"] == "s/x"
    assert reader_url.place(url, Path("/h")) == reader_url.place(made, Path("/h"))


def test_a_role_has_a_name_whatever_the_database_is_called() -> None:
    assert reader_url.role_name("runs") == "tokfleet_reader_runs"
    strange = {reader_url.role_name(name) for name in ('a"b', "ä", "x" * 63, "x" * 62)}
    assert len(strange) == 4
    assert all(len(name) <= 63 and name.isascii() for name in strange)
