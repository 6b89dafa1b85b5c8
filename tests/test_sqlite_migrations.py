from pathlib import Path

import pytest

from orchestrator.migrate import check, current, upgrade
from orchestrator.store import Store
from schema.errors import StoreError
from schema.revisions import REVISIONS
from tests.stores import answers, change, count, new_store
from tests.test_migrations import KNOWN, migrations_with, with_a_result


def test_a_store_with_runs_is_copied_before_its_revision_changes(tmp_path: Path) -> None:
    path = with_a_result(str(new_store(tmp_path)))
    scripts = migrations_with(tmp_path, "op.add_column('run', sa.Column('colour', sa.Text()))")
    done = upgrade(path, scripts, KNOWN)
    assert (done.before, done.after) == (REVISIONS[-1], "next")
    assert done.backup is not None
    assert done.backup.parent == tmp_path
    with Store.open(str(done.backup)) as store:
        assert len(store.results()) == 1
    assert current(path) == "next"
    assert check(path, scripts, KNOWN) == []


def test_an_empty_store_is_upgraded_without_a_copy(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    assert upgrade(str(path), migrations_with(tmp_path, "pass"), KNOWN).backup is None
    assert list(tmp_path.glob("*.backup")) == []


def test_a_table_can_be_made_anew_though_rows_refer_to_it(tmp_path: Path) -> None:
    path = with_a_result(str(new_store(tmp_path)))
    body = (
        "with op.batch_alter_table('attempt', recreate='always') as batch:\n"
        "        batch.alter_column('quality', type_=sa.String(40))"
    )
    upgrade(path, migrations_with(tmp_path, body), KNOWN)
    assert count(path, "sample") == 3
    assert answers(path, "PRAGMA foreign_key_check") == []
    definition = answers(path, "SELECT sql FROM sqlite_master WHERE name = 'attempt'")[0][0]
    assert "ck_attempt_measured_has_a_rate" in definition


def test_a_migration_that_orphans_rows_is_taken_back(tmp_path: Path) -> None:
    path = with_a_result(str(new_store(tmp_path)))
    scripts = migrations_with(tmp_path, "op.execute('DELETE FROM attempt')")
    with pytest.raises(StoreError, match="refer to rows that do not exist"):
        upgrade(path, scripts, KNOWN)
    assert count(path, "attempt") == 1


def test_rows_that_refer_to_nothing_are_found(tmp_path: Path) -> None:
    path = with_a_result(str(new_store(tmp_path)))
    change(path, "DELETE FROM job")
    assert "refer to rows that do not exist" in check(path)[0]


def test_a_newer_file_is_refused_without_a_byte_of_it_changed(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    change(str(path), "UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    for use in (upgrade, Store.open):
        with pytest.raises(StoreError, match="newer"):
            use(str(path))
    assert path.read_bytes() == before


def test_a_path_with_every_awkward_character_works(tmp_path: Path) -> None:
    directory = tmp_path / "100% ü # ? & 'q'"
    url = f"sqlite:///{directory / 'runs.db'}"
    upgrade(url)
    assert current(url) == REVISIONS[-1]
    assert [path.name for path in directory.iterdir() if path.suffix == ".db"] == ["runs.db"]
