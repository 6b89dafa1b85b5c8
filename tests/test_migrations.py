import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from orchestrator import engines
from orchestrator.ask import ask
from orchestrator.migrate import SCRIPTS, Upgraded, check, current, script_config, upgrade
from orchestrator.store import Store
from schema.errors import SchemaMismatchError, StoreError
from schema.revisions import REVISIONS
from schema.tables import metadata
from schema.views import VIEWS
from tests.factories import make_fingerprint, make_job, make_record, make_run
from tests.stores import new_store

ROOT = Path(__file__).parents[1]
KNOWN = (*REVISIONS, "next")
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = {revision!r}
down_revision = {down!r}


def upgrade() -> None:
    {body}


def downgrade() -> None:
    pass
"""


def migrations_with(directory: Path, body: str, revision: str = "next", down: str = REVISIONS[-1]) -> Path:
    """Return a copy of the migrations with one more, which does `body`."""
    scripts = directory / "migrations"
    if not scripts.exists():
        shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    text = MIGRATION.format(revision=revision, down=down, body=body)
    (scripts / "versions" / f"{revision}.py").write_text(text)
    return scripts


def store_with_a_result(directory: Path) -> Path:
    path = new_store(directory)
    with Store.open(str(path)) as store:
        store.save_run(make_run(), [make_job()])
        store.save_fingerprint(make_fingerprint())
        store.save_records([make_record()])
    return path


def rows(path: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def write(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def test_a_new_store_is_at_the_newest_revision_and_without_problems(tmp_path: Path) -> None:
    url = str(tmp_path / "deep" / "er" / "runs.db")
    assert current(url) is None
    assert upgrade(url) == Upgraded(before=None, after=REVISIONS[-1])
    assert current(url) == REVISIONS[-1]
    assert check(url) == []
    assert upgrade(url) == Upgraded(before=REVISIONS[-1], after=REVISIONS[-1])


def test_alembic_sees_no_difference_between_migrations_and_tables(tmp_path: Path) -> None:
    engine = engines.reader(new_store(tmp_path))
    with engine.connect() as connection:
        command.check(script_config(connection))
        options = {"autogenerate_plugins": ["alembic.autogenerate.*", "alembic.ext.checkconstraint_byname"]}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    engine.dispose()


def test_the_known_revisions_are_those_of_the_migrations(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    assert check(str(path)) == []
    assert "schema.revisions says" in check(str(path), known=("0000", *REVISIONS))[0]


def test_several_processes_that_make_one_store_at_once_all_succeed(tmp_path: Path) -> None:
    code = f"from orchestrator.migrate import upgrade; upgrade({str(tmp_path / 'runs.db')!r})"
    makers = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE) for _ in range(3)]
    assert [(maker.communicate()[1], maker.returncode) for maker in makers] == [(b"", 0)] * 3
    assert check(str(tmp_path / "runs.db")) == []


def test_a_store_with_runs_is_copied_before_its_revision_changes(tmp_path: Path) -> None:
    path = store_with_a_result(tmp_path)
    scripts = migrations_with(tmp_path, "op.add_column('run', sa.Column('colour', sa.Text()))")
    done = upgrade(str(path), scripts, KNOWN)
    assert (done.before, done.after) == (REVISIONS[-1], "next")
    assert done.backup is not None
    assert done.backup.parent == tmp_path
    assert rows(done.backup, "SELECT version_num, (SELECT COUNT(*) FROM sample) FROM alembic_version") == [
        (REVISIONS[-1], 3)
    ]
    assert rows(path, "SELECT version_num FROM alembic_version") == [("next",)]
    assert check(str(path), scripts, KNOWN) == []


OLD_STORE = """
INSERT INTO host VALUES (1, 'host-1', NULL, 'boxa', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO model (id, identity, name) VALUES (1, 'sha256:aa', 'a.gguf');
INSERT INTO run VALUES (1, 'run-1', 'old', '', 'aa', '2026-01-01 00:00:00', '0.0.9', '{}');
INSERT INTO job (id, job_uid, run_id, host_id, model_id, config_key, replica, model_source, model_spec, build, kind,
    test, n_prompt, n_gen, n_depth, asked_n_batch, asked_n_ubatch, asked_n_threads, asked_type_k, asked_type_v,
    asked_flash_attn, asked_n_gpu_layers, asked_mmap, repetitions, seed, timeout_seconds)
VALUES (1, 'job-1', 1, 1, 1, 'key', 0, 'path', '/a.gguf', 'default', 'tg', 'tg8',
    0, 8, 0, 2048, 512, 'physical', 'f16', 'f16', 'auto', 'all', 'off', 5, 0, 60.0);
INSERT INTO attempt (id, attempt_uid, job_id, number, status, final, superseded, started_at, ended_at, mmap, in_effect,
    resolved, n_samples, avg_ts, avg_ns, quality_reasons)
VALUES (1, 'attempt-1', 1, 1, 'measured', 1, 0, '2026-01-01 00:00:00', '2026-01-01 00:00:01', 'off', '{}',
    '{}', 1, 8.0, 1000000000, '[]');
"""


def test_a_store_of_the_first_revision_keeps_its_rows_and_gets_the_defaults_of_new_settings(tmp_path: Path) -> None:
    scripts, path = tmp_path / "first", tmp_path / "old.sqlite"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__", "000[2-9]*"))
    upgrade(str(path), scripts, REVISIONS[:1])
    write(path, OLD_STORE)
    assert upgrade(str(path)).before == "0001"
    asked = "asked_load_mode, asked_mmap, asked_devices, asked_poll, asked_n_threads_batch, n_parallel, n_verify"
    assert rows(path, f"SELECT load_mode, {asked}, seq_ts, avg_ts, devices FROM results") == [
        ("none", "none", "off", "auto", 50, "same", 1, 0, 8.0, 8.0, None)
    ]
    assert check(str(path)) == []
    with Store.open(str(path)) as store:
        assert [job.settings.load_mode for job in store.jobs("run-1")] == ["none"]


OLDER_MACHINE = """
INSERT INTO hardware (hardware_id, arch, cpu_name, caches) VALUES ('hw', 'x86_64', 'old', '[]');
INSERT INTO allocation (allocation_id, n_cpus) VALUES ('al', 4);
INSERT INTO environment (environment_id, os) VALUES ('en', 'Debian');
INSERT INTO build (build_id, binding) VALUES ('bu', '0.3');
UPDATE host SET hardware_id = 'hw', allocation_id = 'al', environment_id = 'en', build_id = 'bu';
UPDATE attempt SET hardware_id = 'hw', allocation_id = 'al', environment_id = 'en', build_id = 'bu';
INSERT INTO condition (attempt_id, cpu_share, major_faults) VALUES (1, 0.5, 7);
INSERT INTO sample (attempt_id, repetition, n_tokens, elapsed_ns) VALUES (1, 1, 8, 1000000000);
INSERT INTO probe (probe_uid, host_id, hardware_id, kind, taken_at, details)
VALUES ('p', 1, 'hw', 'memory_read', '2025-12-31T00:00:00.000000Z', '{"n": 1}');
"""


@pytest.mark.parametrize("revision", ["0001", "0002"])
def test_a_store_of_any_older_revision_keeps_what_it_knows_of_machines_and_takes_new_rows(
    tmp_path: Path, revision: str
) -> None:
    path, n = tmp_path / "old.sqlite", REVISIONS.index(revision) + 1
    scripts = tmp_path / "older"
    newer = [f"{name}*" for name in REVISIONS[n:]]
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__", *newer))
    upgrade(str(path), scripts, REVISIONS[:n])
    write(path, OLD_STORE if revision == "0001" else OLD_STORE.replace("mmap", "load_mode"))
    write(path, OLDER_MACHINE)
    assert upgrade(str(path)).before == revision
    assert check(str(path)) == []
    columns = "cpu_info, cpu_share, major_faults, looks, on_battery, joules_total, mbu, bound, interleaved, across"
    assert rows(path, f"SELECT {columns} FROM results") == [("old", 0.5, 7, *[None] * 5, 0, None)]
    assert rows(path, "SELECT os, n_cpus, core_types, hardware_facts, state FROM hosts") == [("Debian", 4, *[None] * 3)]
    assert rows(path, "SELECT kind, details, value, method FROM probes") == [("memory_read", '{"n": 1}', None, None)]
    with Store.open(str(path)) as store:
        store.save_fingerprint(make_fingerprint())
        store.save_run(make_run(run_uid="run-2"), [make_job(run_uid="run-2")])
        assert store.save_records([make_record(make_job(run_uid="run-2"))]) == 1
        assert len(store.results()) == 2
        assert [job.interleaved for job in store.jobs("run-1")] == [False]


def test_an_empty_store_is_upgraded_without_a_copy(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    assert upgrade(str(path), migrations_with(tmp_path, "pass"), KNOWN).backup is None
    assert list(tmp_path.glob("*.backup")) == []


def test_a_table_that_views_read_and_rows_refer_to_can_be_made_anew_without_losing_a_row(tmp_path: Path) -> None:
    path = store_with_a_result(tmp_path)
    body = (
        "with op.batch_alter_table('attempt', recreate='always') as batch:\n"
        "        batch.alter_column('quality', type_=sa.String(40))"
    )
    upgrade(str(path), migrations_with(tmp_path, body), KNOWN)
    assert rows(path, "SELECT COUNT(*) FROM sample") == [(3,)]
    assert rows(path, "SELECT avg_ts > 0, host FROM results") == [(1, "box-a")]
    assert rows(path, "PRAGMA foreign_key_check") == []
    definition = rows(path, "SELECT sql FROM sqlite_master WHERE name = 'attempt'")[0][0]
    assert "ck_attempt_measured_has_a_rate" in definition


def test_a_migration_that_fails_halfway_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = store_with_a_result(tmp_path)
    before = rows(path, "SELECT name, sql FROM sqlite_master ORDER BY name")
    body = "op.create_table('half', sa.Column('a', sa.Text()))\n    op.execute('SELECT no_such_column FROM run')"
    scripts = migrations_with(tmp_path, body)
    with pytest.raises(StoreError, match="no_such_column"):
        upgrade(str(path), scripts, KNOWN)
    assert rows(path, "SELECT name, sql FROM sqlite_master ORDER BY name") == before
    assert current(str(path)) == REVISIONS[-1]
    migrations_with(tmp_path, "op.create_table('whole', sa.Column('a', sa.Text()))")
    assert upgrade(str(path), scripts, KNOWN).after == "next"


def test_a_migration_that_orphans_rows_is_taken_back(tmp_path: Path) -> None:
    path = store_with_a_result(tmp_path)
    scripts = migrations_with(tmp_path, "op.execute('DELETE FROM attempt')")
    with pytest.raises(StoreError, match="refer to rows that do not exist"):
        upgrade(str(path), scripts, KNOWN)
    assert rows(path, "SELECT COUNT(*) FROM attempt") == [(1,)]


def test_an_upgrade_that_is_killed_in_the_middle_can_be_started_again(tmp_path: Path) -> None:
    path = store_with_a_result(tmp_path)
    scripts = migrations_with(
        tmp_path, "op.create_table('t', sa.Column('a', sa.Text()))\n    __import__('os')._exit(9)"
    )
    code = (
        "from pathlib import Path; from orchestrator.migrate import upgrade; "
        f"upgrade({str(path)!r}, Path({str(scripts)!r}), {KNOWN!r})"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 9
    assert current(str(path)) == REVISIONS[-1]
    migrations_with(tmp_path, "op.create_table('t', sa.Column('a', sa.Text()))")
    upgrade(str(path), scripts, KNOWN)
    assert check(str(path), scripts, KNOWN) == []


def test_an_older_store_is_refused_with_the_command_that_upgrades_it(tmp_path: Path) -> None:
    path = store_with_a_result(tmp_path)
    write(path, "UPDATE alembic_version SET version_num = '0000'")
    problem = check(str(path), known=("0000", *REVISIONS))[-1]
    assert "is older (revision 0000)" in problem
    assert "tokfleet db upgrade" in problem


def test_a_newer_store_is_refused_with_the_version_to_install_and_never_touched(tmp_path: Path) -> None:
    path = store_with_a_result(tmp_path)
    write(path, "UPDATE alembic_version SET version_num = '9999'; UPDATE schema_info SET tokfleet_version = '7.5.0'")
    before = path.read_bytes()
    for use in (upgrade, Store.open, lambda url: ask(url, "SELECT 1")):
        with pytest.raises(SchemaMismatchError, match=r"newer \(revision 9999\).*Install tokfleet 7\.5\.0 or newer"):
            use(str(path))
    assert path.read_bytes() == before


def test_two_rows_in_the_version_table_are_found_and_refused(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    write(path, "INSERT INTO alembic_version VALUES ('aaaa00000001')")
    assert f"claims 2 versions at once: {REVISIONS[-1]}, aaaa00000001" in check(str(path))[0]
    for use in (upgrade, Store.open, current):
        with pytest.raises(SchemaMismatchError, match="2 versions at once"):
            use(str(path))


def test_two_heads_are_found_and_not_upgraded_to(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    scripts = migrations_with(tmp_path, "pass", revision="left")
    migrations_with(tmp_path, "pass", revision="right")
    assert "2 heads, left, right" in check(str(path), scripts)[0]
    with pytest.raises(StoreError, match="heads"):
        upgrade(str(path), scripts, KNOWN)
    assert current(str(path)) == REVISIONS[-1]


@pytest.mark.parametrize("tables", ["CREATE TABLE llama_bench (avg_ts REAL)", "DROP TABLE alembic_version"])
def test_tables_without_a_version_are_refused_by_everything(tmp_path: Path, tables: str) -> None:
    path = tmp_path / "other.db"
    if tables.startswith("DROP"):
        new_store(tmp_path, "other.db")
    write(path, tables)
    assert "tables but no version" in check(str(path))[0]
    for use in (upgrade, Store.open, lambda url: ask(url, "SELECT 1")):
        with pytest.raises(StoreError, match="tables but no version"):
            use(str(path))


@pytest.mark.parametrize(
    "damage", ["DROP VIEW latest", "UPDATE schema_info SET view_hash = 'old'", "DELETE FROM schema_info"]
)
def test_views_of_another_version_are_found_and_made_anew_without_a_copy(tmp_path: Path, damage: str) -> None:
    path = store_with_a_result(tmp_path)
    write(path, damage)
    assert "views" in check(str(path))[0]
    assert upgrade(str(path)).backup is None
    assert check(str(path)) == []
    assert rows(path, "SELECT COUNT(*) FROM sqlite_master WHERE type = 'view'") == [(len(VIEWS),)]


def test_rows_that_refer_to_nothing_are_found(tmp_path: Path) -> None:
    path = store_with_a_result(tmp_path)
    write(path, "PRAGMA foreign_keys = OFF; DELETE FROM job")
    assert "refer to rows that do not exist" in check(str(path))[0]


def test_a_path_with_every_awkward_character_works(tmp_path: Path) -> None:
    directory = tmp_path / "100% ü # ? & 'q'"
    url = f"sqlite:///{directory / 'runs.db'}"
    upgrade(url)
    assert current(url) == REVISIONS[-1]
    assert [path.name for path in directory.iterdir() if path.suffix == ".db"] == ["runs.db"]
