"""Statements that want more than to read, or to never end: nothing changes, and the server and the command stay up."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ask import ask
from schema.errors import TokfleetError
from tests.asking import let_read
from tests.lab import fill
from tests.postgres import Server
from tests.stores import new_store

SECONDS = 1.0
FAR_TOO_LONG = 30.0
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
LONG = "(SELECT group_concat(hex(zeroblob(100)), '') FROM n WHERE i < 4000)"

REFUSED_BY_BOTH = (
    "DELETE FROM run",
    "UPDATE attempt SET avg_ts = 1000000",
    "INSERT INTO model (identity) VALUES ('x')",
    "INSERT INTO model (identity) SELECT 'x'",
    "DELETE FROM run RETURNING *",
    "DROP TABLE sample",
    "DROP VIEW results",
    "CREATE TABLE pwned (a INTEGER)",
    "CREATE TEMP TABLE pwned (a INTEGER)",
    "CREATE TABLE pwned AS SELECT 1 AS a",
    "CREATE VIEW pwned AS SELECT 1 AS a",
    "CREATE INDEX pwned ON run (name)",
    "ALTER TABLE run ADD COLUMN pwned INTEGER",
    "ALTER TABLE run RENAME TO pwned",
    "WITH x AS (SELECT 1) DELETE FROM run",
    "WITH x AS (SELECT 1 AS a) INSERT INTO model (identity) SELECT a FROM x",
    "WITH x AS (DELETE FROM run RETURNING *) SELECT * FROM x",
    "-- a remark\nDELETE FROM run",
    "/* a remark */ DELETE FROM run",
    "; DELETE FROM run",
    "SELECT 1; DELETE FROM run",
    "SELECT 1; COMMIT; CREATE TABLE pwned (a INTEGER)",
    "SELECT 1;; DROP TABLE run;",
    "SELECT 1; BEGIN; DELETE FROM run; COMMIT",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT a",
    "ANALYZE",
    "VACUUM",
    f"{ENDLESS} SELECT count(*) FROM n",
    f"{ENDLESS} SELECT i FROM n WHERE i < 0",
    "SELECT count(*) FROM samples a, samples b, samples c, samples d, samples e, samples f",
    "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
)

OF_SQLITE = (
    "REPLACE INTO model (identity) VALUES ('x')",
    "CREATE TRIGGER pwned AFTER INSERT ON run BEGIN DELETE FROM run; END",
    "CREATE VIRTUAL TABLE pwned USING fts5(a)",
    "ATTACH '{folder}/pwned' AS pwned",
    "ATTACH ':memory:' AS pwned",
    "SELECT 1; ATTACH '{folder}/pwned' AS pwned",
    "DETACH main",
    "VACUUM INTO '{folder}/pwned'",
    "BEGIN IMMEDIATE",
    "REINDEX",
    "PRAGMA journal_mode = delete",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA user_version = 7",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA temp_store_directory = '{folder}'",
    "SELECT * FROM pragma_table_info('run')",
    "SELECT * FROM pragma_journal_mode('delete')",
    "SELECT * FROM dbstat",
    "SELECT * FROM sqlite_dbpage",
    "SELECT load_extension('pwned')",
    "SELECT writefile('{folder}/pwned', 'x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT edit('x')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT hex(zeroblob(1000000000))",
    "SELECT randomblob(1000000000)",
    "SELECT printf('%.*c', 2000000000, 'x')",
    f"{ENDLESS} SELECT group_concat(hex(zeroblob(100000))) FROM n",
    f"{ENDLESS} SELECT i FROM n ORDER BY random()",
    f"{ENDLESS} SELECT sum(instr({LONG}, {LONG} || '1')) FROM n",
    f"{ENDLESS} SELECT sum({LONG} LIKE '%0%0%0%0%0%0%0%0%0%0%1') FROM n",
    f"{ENDLESS} SELECT count(DISTINCT hex(zeroblob(i % 400000))) FROM n",
)

OF_POSTGRES = (
    "COPY run TO '{folder}/pwned'",
    "COPY run TO PROGRAM 'touch {folder}/pwned'",
    "COPY (SELECT 1) TO STDOUT",
    "COPY run FROM '/etc/passwd'",
    "DO $$ BEGIN DELETE FROM run; END $$",
    "CALL pwned()",
    "PREPARE p AS DELETE FROM run",
    "EXECUTE p",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "RESET ALL",
    "SET statement_timeout = 0",
    "SHOW ALL",
    "TRUNCATE run CASCADE",
    "LOCK TABLE run",
    "SELECT * FROM run FOR UPDATE",
    "SELECT 1 AS a INTO pwned",
    "EXPLAIN ANALYZE DELETE FROM run",
    "GRANT ALL ON run TO PUBLIC",
    "CREATE ROLE pwned SUPERUSER",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "CREATE FUNCTION pwned() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE EXTENSION dblink",
    "ALTER SYSTEM SET work_mem = '1GB'",
    "CHECKPOINT",
    "LISTEN pwned",
    "MOVE FORWARD ALL IN answer",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '{folder}/pwned')",
    "SELECT pg_reload_conf()",
    "SELECT pg_switch_wal()",
    "SELECT pg_stat_reset()",
    "SELECT nextval('run_id_seq')",
    "SELECT setval('run_id_seq', 1000)",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT set_config('session_authorization', 'postgres', false)",
    "SELECT set_config('statement_timeout', '0', false), pg_sleep(1000)",
    "SELECT pg_sleep(1000)",
    "SELECT pg_sleep(0.4) FROM generate_series(1, 1000)",
    "SELECT count(*) FROM generate_series(1, 100000000000)",
    "SELECT pg_terminate_backend(pg_backend_pid())",
)

HARMLESS_OR_REFUSED = (
    "SELECT set_config('role', 'none', false)",
    "SELECT set_config('role', 'none', false), query_to_xml('DELETE FROM run', true, true, '')",
    "SELECT query_to_xml('SET ROLE postgres', true, true, '')",
    "SELECT query_to_xml('COMMIT', true, true, '')",
    "SELECT set_config('default_transaction_read_only', 'off', false)",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, 'pwned')",
    "SELECT pg_notify('pwned', 'x')",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
    "SELECT pg_logical_emit_message(false, 'pwned', 'x')",
    "SELECT length(array_to_string(array_agg(repeat('x', 1000000)), '')) FROM generate_series(1, 300)",
    "SELECT repeat('x', 1000000000)",
    "SELECT string_agg(a.x, '') FROM (SELECT repeat('x', 100000000) AS x FROM generate_series(1, 20)) AS a",
)

STATEMENTS = {
    "sqlite": [(sql, True) for sql in (*REFUSED_BY_BOTH, *OF_SQLITE)],
    "postgresql": [(sql, True) for sql in (*REFUSED_BY_BOTH, *OF_POSTGRES)] + [(s, False) for s in HARMLESS_OR_REFUSED],
}

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
_CATALOGUES = (
    "SELECT relname, relkind, reltuples >= -1 FROM pg_class ORDER BY oid",
    "SELECT rolname, rolsuper, rolconfig FROM pg_roles ORDER BY oid",
    "SELECT proname FROM pg_proc WHERE oid > 16384 ORDER BY oid",
    "SELECT extname FROM pg_extension ORDER BY oid",
    "SELECT oid FROM pg_largeobject_metadata ORDER BY oid",
    "SELECT setting FROM pg_settings WHERE name IN ('work_mem', 'statement_timeout') ORDER BY name",
    "SELECT sequencename, last_value FROM pg_sequences ORDER BY 1",
)


class Target:
    """A store to attack, and the way to see whether anything of it has changed."""

    def __init__(self, url: str, folder: Path, server: Server | None) -> None:
        self.url = url
        self.folder = folder
        self._server = server
        self.before = self.state()

    def state(self) -> Any:
        """Return all that a statement might have changed."""
        if self._server is None:
            files = [
                path for path in self.folder.iterdir() if not path.name.endswith("-shm")
            ]  # SQLite's own, of readers
            return sorted((path.name, data) for path in files if (data := path.read_bytes()))
        database = self.url.partition("@/")[2].partition("?")[0]
        tables = [name for (name,) in self._server.execute(_TABLES, database)]
        whole = [
            self._server.execute(f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {t} AS t", database)
            for t in tables
        ]
        catalogues = [self._server.execute(query, database) for query in _CATALOGUES]
        return [tables, whole, catalogues, sorted(path.name for path in self.folder.iterdir())]


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("target")
    server: Server | None = None
    if request.param == "sqlite":
        url = f"sqlite:///{new_store(folder)}"
    else:
        server = request.getfixturevalue("postgres")
        assert server is not None
        url = server.url(server.create(request.getfixturevalue("postgres_template")))
        folder.chmod(0o777)
    fill(url)
    with pytest.MonkeyPatch.context() as patch:
        let_read(url, tmp_path_factory.mktemp("home"), patch)
        yield Target(url, folder, server)


def outcome(target: Target, sql: str) -> str:
    """Return the refusal, or `answered`; a test that would wait for ever fails instead."""
    said: list[str] = []

    def attack() -> None:
        try:
            list(ask(target.url, sql.replace("{folder}", str(target.folder)), timeout_seconds=SECONDS, limit=100_000))
            said.append("answered")
        except TokfleetError as error:
            said.append(str(error))

    thread = threading.Thread(target=attack, daemon=True)
    thread.start()
    thread.join(FAR_TOO_LONG)
    assert said, "neither refused nor stopped"
    return said[0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "must_be_refused" in metafunc.fixturenames:
        cases = [(name, sql, must) for name, found in STATEMENTS.items() for sql, must in found]
        metafunc.parametrize(
            ("target", "sql", "must_be_refused"),
            cases,
            indirect=["target"],
            scope="module",
            ids=[f"{c[0]}-{c[1][:60]}" for c in cases],
        )


def test_a_hostile_statement_changes_nothing_and_ends(target: Target, sql: str, must_be_refused: bool) -> None:
    said = outcome(target, sql)
    assert said != "answered" or not must_be_refused
    assert "bug" not in said
    assert target.state() == target.before


@pytest.mark.parametrize("target", list(STATEMENTS), indirect=True, scope="module")
def test_after_all_of_them_questions_are_answered(target: Target) -> None:
    assert list(ask(target.url, "SELECT COUNT(*) FROM hosts")) == [(3,)]


def test_there_are_sixty_for_each_database() -> None:
    assert all(len(found) >= 60 for found in STATEMENTS.values())


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_postgres_is_never_asked_as_somebody_who_could_write(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKFLEET_DB_READER", target.url)
    assert "may do more than read" in outcome(target, "SELECT 1")
