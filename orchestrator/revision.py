"""Whether a store has the revision that this code works with, in words that name the way out (pure)."""

from collections.abc import Callable

from schema.errors import SchemaMismatchError, StoreError
from schema.revisions import REVISIONS

Revisions = tuple[str, ...] | None
"""The rows of the version table; () where tables lack one, None where there is no table at all."""

ELSEWHERE = "TOKFLEET_DB names another one for it."


def check_revision(
    name: str, found: Revisions, made_by: Callable[[], str | None], known: tuple[str, ...] = REVISIONS
) -> None:
    """Raise SchemaMismatchError unless the database `name` has the newest revision that is `known`.

    Raises StoreError where it is no store. `made_by` returns which tokfleet made it, where it says so.
    """
    if found is None:
        raise StoreError(f"No run was stored yet at {name}: the database is empty. `tokfleet run SWEEP.yaml` fills it.")
    if not found:
        raise StoreError(
            f"The database {name} has tables but no version of tokfleet's: another program made them, or "
            f"the version was lost, which a backup brings back. {ELSEWHERE}"
        )
    if len(found) > 1:
        raise SchemaMismatchError(
            f"The database {name} claims {len(found)} versions at once: {', '.join(found)}. Restore a backup, "
            "or delete the wrong rows of its table alembic_version; `tokfleet db check` tells more."
        )
    if found[0] not in known:
        raise SchemaMismatchError(newer(name, found[0], made_by()))
    if found[0] != known[-1]:
        raise SchemaMismatchError(
            f"The database {name} is older (revision {found[0]}) than this tokfleet ({known[-1]}). "
            "`tokfleet db upgrade` brings it up to date, after a backup."
        )


def newer(name: str, revision: str, made_by: str | None) -> str:
    """Return the sentence that says which tokfleet can use a store of a revision unknown here."""
    wanted = f"tokfleet {made_by}" if made_by else "the tokfleet that made it"
    return f"The database {name} is newer (revision {revision}) than this tokfleet. Install {wanted} or newer."
