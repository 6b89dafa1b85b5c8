import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from orchestrator.database import database_at
from orchestrator.migrate import SCRIPTS, Upgraded, check, current, script_config, upgrade
from orchestrator.store import Store
from schema.errors import SchemaMismatchError, StoreError
from schema.revisions import REVISIONS
from schema.tables import metadata, schema_info
from schema.views import VIEWS
from tests.factories import make_fingerprint, make_job, make_record, make_run
from tests.stores import answers, change, count, open_store

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


def migrations_until(directory: Path, revision: str) -> Path:
    """Return a copy of the migrations as they were when `revision` was the newest."""
    newer = [f"{name}*" for name in REVISIONS[REVISIONS.index(revision) + 1 :]]
    scripts = directory / "older"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__", *newer))
    return scripts


def older_store(url: str, directory: Path, revision: str) -> None:
    """Make a store at `url` as the code of `revision` made it, with a view that was not yet what it is now."""
    engine = database_at(url).migrator()
    with engine.begin() as connection:
        command.upgrade(script_config(connection, migrations_until(directory, revision)), "head")
        connection.exec_driver_sql("CREATE VIEW results AS SELECT a.*, j.test FROM attempt AS a JOIN job AS j ON true")
        row = {
            "id": 1,
            "view_hash": "old",
            "tokfleet_version": "0.0.9",
            "upgraded_at": datetime(2026, 1, 1, tzinfo=UTC),
        }
        connection.execute(schema_info.insert(), row)
    engine.dispose()


def with_a_result(url: str) -> str:
    """Return `url` when its store has a run with one result."""
    with open_store(url) as store:
        store.save_records([make_record()])
    return url


def objects(url: str) -> set[str]:
    """Return the names of all tables and views."""
    engine = database_at(url).reader()
    with engine.connect() as connection:
        found = inspect(connection)
        names = {*found.get_table_names(), *found.get_view_names()}
    engine.dispose()
    return names


def test_a_new_store_is_at_the_newest_revision_and_without_problems(blank_url: str) -> None:
    url = blank_url.replace("runs.db", "deep/er/runs.db")
    assert current(url) is None
    assert upgrade(url) == Upgraded(before=None, after=REVISIONS[-1])
    assert current(url) == REVISIONS[-1]
    assert check(url) == []
    assert upgrade(url) == Upgraded(before=REVISIONS[-1], after=REVISIONS[-1])


def test_alembic_sees_no_difference_between_migrations_and_tables(store_url: str) -> None:
    engine = database_at(store_url).reader()
    with engine.connect() as connection:
        command.check(script_config(connection))
        options = {"autogenerate_plugins": ["alembic.autogenerate.*", "alembic.ext.checkconstraint_byname"]}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    engine.dispose()


def test_the_known_revisions_are_those_of_the_migrations(store_url: str) -> None:
    assert check(store_url) == []
    assert "schema.revisions says" in check(store_url, known=("0000", *REVISIONS))[0]


def test_several_processes_that_make_one_store_at_once_all_succeed(blank_url: str) -> None:
    code = f"from orchestrator.migrate import upgrade; upgrade({blank_url!r})"
    makers = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE) for _ in range(3)]
    assert [(maker.communicate()[1], maker.returncode) for maker in makers] == [(b"", 0)] * 3
    assert check(blank_url) == []


def test_several_processes_that_upgrade_one_store_at_once_all_succeed(blank_url: str, tmp_path: Path) -> None:
    older_store(blank_url, tmp_path, "0001")
    change(blank_url, OLD_RUN + OLD_MACHINE)
    code = f"from orchestrator.migrate import upgrade; print(upgrade({blank_url!r}).before)"
    makers = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    ends = [maker.communicate() for maker in makers]
    assert [err for _, err in ends] == [b""] * 3
    assert sorted(out.decode().strip() for out, _ in ends) == ["0001", REVISIONS[-1], REVISIONS[-1]]
    assert check(blank_url) == []
    assert count(blank_url, "sample") == 1


OLD_RUN = """
INSERT INTO host (id, host_uid, hostname) VALUES (900, 'host-1', 'boxa');
INSERT INTO model (id, identity, name) VALUES (900, 'sha256:aa', 'a.gguf');
INSERT INTO run (id, run_uid, name, sweep_text, sweep_sha256, created_at, tokfleet_version, tags)
VALUES (900, 'run-1', 'old', '', 'aa', '2026-01-01T00:00:00.000000Z', '0.0.9', '{}');
INSERT INTO job (id, job_uid, run_id, host_id, model_id, config_key, replica, model_source, model_spec, build, kind,
    test, n_prompt, n_gen, n_depth, asked_n_batch, asked_n_ubatch, asked_n_threads, asked_type_k, asked_type_v,
    asked_flash_attn, asked_n_gpu_layers, asked_mmap, repetitions, seed, timeout_seconds)
VALUES (900, 'job-1', 900, 900, 900, 'key', 0, 'path', '/a.gguf', 'default', 'tg', 'tg8',
    0, 8, 0, 2048, 512, 'physical', 'f16', 'f16', 'auto', 'all', 'off', 5, 0, 60.0);
INSERT INTO attempt (id, attempt_uid, job_id, number, status, final, superseded, started_at, ended_at, mmap, in_effect,
    resolved, n_samples, avg_ts, avg_ns, quality_reasons)
VALUES (900, 'attempt-1', 900, 1, 'measured', true, false, '2026-01-01T00:00:00.000000Z',
    '2026-01-01T00:00:01.000000Z', 'off', '{}', '{}', 1, 8.0, 1000000000, '[]');
"""

OLD_MACHINE = """
INSERT INTO hardware (hardware_id, arch, cpu_name, caches) VALUES ('hw', 'x86_64', 'old', '[]');
INSERT INTO allocation (allocation_id, n_cpus) VALUES ('al', 4);
INSERT INTO environment (environment_id, os) VALUES ('en', 'Debian');
INSERT INTO build (build_id, binding) VALUES ('bu', '0.3');
UPDATE host SET hardware_id = 'hw', allocation_id = 'al', environment_id = 'en', build_id = 'bu';
UPDATE attempt SET hardware_id = 'hw', allocation_id = 'al', environment_id = 'en', build_id = 'bu';
INSERT INTO condition (attempt_id, cpu_share, major_faults) VALUES (900, 0.5, 7);
INSERT INTO sample (attempt_id, repetition, n_tokens, elapsed_ns) VALUES (900, 1, 8, 1000000000);
INSERT INTO probe (id, probe_uid, host_id, hardware_id, kind, taken_at, details)
VALUES (900, 'p', 900, 'hw', 'memory_read', '2025-12-31T00:00:00.000000Z', '{"n": 1}');
"""


def test_a_store_of_the_first_revision_keeps_its_rows_and_gets_the_defaults_of_new_settings(
    blank_url: str, tmp_path: Path
) -> None:
    older_store(blank_url, tmp_path, "0001")
    change(blank_url, OLD_RUN)
    assert upgrade(blank_url).before == "0001"
    asked = "asked_load_mode, asked_mmap, asked_devices, asked_poll, asked_n_threads_batch, n_parallel, n_verify"
    assert answers(blank_url, f"SELECT load_mode, {asked}, seq_ts, avg_ts, devices FROM results") == [
        ("none", "none", "off", "auto", 50, "same", 1, 0, 8.0, 8.0, None)
    ]
    assert check(blank_url) == []
    with Store.open(blank_url) as store:
        assert [job.settings.load_mode for job in store.jobs("run-1")] == ["none"]


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_a_store_of_any_older_revision_keeps_what_it_knows_of_machines_and_takes_new_rows(
    blank_url: str, tmp_path: Path, revision: str
) -> None:
    older_store(blank_url, tmp_path, revision)
    change(blank_url, OLD_RUN if revision == "0001" else OLD_RUN.replace("mmap", "load_mode"))
    change(blank_url, OLD_MACHINE)
    with pytest.raises(SchemaMismatchError, match=rf"is older \(revision {revision}\).*tokfleet db upgrade"):
        Store.open(blank_url)
    assert upgrade(blank_url).before == revision
    assert check(blank_url) == []
    columns = "cpu_info, cpu_share, major_faults, looks, on_battery, joules_total, mbu, bound, interleaved, across"
    assert answers(blank_url, f"SELECT {columns} FROM results") == [("old", 0.5, 7, *[None] * 5, 0, None)]
    hosts = answers(blank_url, "SELECT os, n_cpus, core_types, hardware_facts, state FROM hosts")
    assert hosts == [("Debian", 4, *[None] * 3)]
    probes = answers(blank_url, "SELECT kind, details, value, method FROM probes")
    assert probes == [("memory_read", '{"n": 1}', None, None)]
    with Store.open(blank_url) as store:
        store.save_fingerprint(make_fingerprint())
        store.save_run(make_run(run_uid="run-2"), [make_job(run_uid="run-2")])
        assert store.save_records([make_record(make_job(run_uid="run-2"))]) == 1
        assert len(store.results()) == 2
        assert [job.interleaved for job in store.jobs("run-1")] == [False]


def test_a_migration_that_fails_halfway_leaves_the_store_as_it_was(store_url: str, tmp_path: Path) -> None:
    with_a_result(store_url)
    before = objects(store_url)
    body = "op.create_table('half', sa.Column('a', sa.Text()))\n    op.execute('SELECT no_such_column FROM run')"
    scripts = migrations_with(tmp_path, body)
    with pytest.raises(StoreError, match="no_such_column"):
        upgrade(store_url, scripts, KNOWN)
    assert objects(store_url) == before
    assert check(store_url) == []
    migrations_with(tmp_path, "op.create_table('whole', sa.Column('a', sa.Text()))")
    assert upgrade(store_url, scripts, KNOWN).after == "next"


def test_an_upgrade_that_is_killed_in_the_middle_can_be_started_again(store_url: str, tmp_path: Path) -> None:
    with_a_result(store_url)
    scripts = migrations_with(
        tmp_path, "op.create_table('t', sa.Column('a', sa.Text()))\n    __import__('os')._exit(9)"
    )
    code = (
        "from pathlib import Path; from orchestrator.migrate import upgrade; "
        f"upgrade({store_url!r}, Path({str(scripts)!r}), {KNOWN!r})"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 9
    assert current(store_url) == REVISIONS[-1]
    migrations_with(tmp_path, "op.create_table('t', sa.Column('a', sa.Text()))")
    upgrade(store_url, scripts, KNOWN)
    assert check(store_url, scripts, KNOWN) == []


def test_a_table_that_views_read_and_rows_refer_to_can_be_made_anew_without_losing_a_row(
    store_url: str, tmp_path: Path
) -> None:
    with_a_result(store_url)
    body = (
        "with op.batch_alter_table('attempt', recreate='auto') as batch:\n"
        "        batch.alter_column('quality', type_=sa.String(40))\n"
        "    with op.batch_alter_table('run') as batch:\n"
        "        batch.drop_column('name')\n"
        "    op.add_column('run', sa.Column('name', sa.Text()))"
    )
    upgrade(store_url, migrations_with(tmp_path, body), KNOWN)
    assert count(store_url, "sample") == 3
    assert answers(store_url, "SELECT host, run_name FROM results WHERE avg_ts > 0") == [("box-a", None)]
    with pytest.raises(Exception, match="ck_attempt_measured_has_a_rate"):
        change(store_url, "UPDATE attempt SET avg_ts = NULL")


def test_an_older_store_is_refused_with_the_command_that_upgrades_it(store_url: str) -> None:
    change(store_url, "UPDATE alembic_version SET version_num = '0000'")
    problem = check(store_url, known=("0000", *REVISIONS))[-1]
    assert "is older (revision 0000)" in problem
    assert "tokfleet db upgrade" in problem


def test_a_newer_store_is_refused_with_the_version_to_install_and_never_touched(store_url: str) -> None:
    with_a_result(store_url)
    change(
        store_url, "UPDATE alembic_version SET version_num = '9999'; UPDATE schema_info SET tokfleet_version = '7.5.0'"
    )
    uses: list[Any] = [upgrade, Store.open]
    for use in uses:
        with pytest.raises(SchemaMismatchError, match=r"newer \(revision 9999\).*Install tokfleet 7\.5\.0 or newer"):
            use(store_url)
    assert answers(store_url, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_two_rows_in_the_version_table_are_found_and_refused(store_url: str) -> None:
    change(store_url, "INSERT INTO alembic_version VALUES ('aaaa00000001')")
    assert f"claims 2 versions at once: {REVISIONS[-1]}, aaaa00000001" in check(store_url)[0]
    uses: list[Any] = [upgrade, Store.open, current]
    for use in uses:
        with pytest.raises(SchemaMismatchError, match="2 versions at once"):
            use(store_url)


def test_two_heads_are_found_and_not_upgraded_to(store_url: str, tmp_path: Path) -> None:
    scripts = migrations_with(tmp_path, "pass", revision="left")
    migrations_with(tmp_path, "pass", revision="right")
    assert "2 heads, left, right" in check(store_url, scripts)[0]
    with pytest.raises(StoreError, match="heads"):
        upgrade(store_url, scripts, KNOWN)
    assert current(store_url) == REVISIONS[-1]


@pytest.mark.parametrize("made", ["CREATE TABLE llama_bench (avg_ts REAL)", None])
def test_tables_without_a_version_are_refused_by_everything(blank_url: str, made: str | None) -> None:
    if made is None:
        upgrade(blank_url)
    change(blank_url, made or "DROP TABLE alembic_version")
    assert "tables but no version" in check(blank_url)[0]
    uses: list[Any] = [upgrade, Store.open, lambda url: Store.open(url, create=True)]
    for use in uses:
        with pytest.raises(StoreError, match="tables but no version"):
            use(blank_url)


@pytest.mark.parametrize(
    "damage", ["DROP VIEW latest", "UPDATE schema_info SET view_hash = 'old'", "DELETE FROM schema_info"]
)
def test_views_of_another_version_are_found_and_made_anew_without_a_copy(store_url: str, damage: str) -> None:
    with_a_result(store_url)
    change(store_url, damage)
    assert "views" in check(store_url)[0]
    assert upgrade(store_url).backup is None
    assert check(store_url) == []
    assert objects(store_url) >= set(VIEWS)
