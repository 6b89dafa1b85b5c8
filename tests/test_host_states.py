"""Drained hosts, labels and who is where: kept in the store, on both databases."""

import pytest

from orchestrator.host_states import HostState, drained, find, labels_of, own_labels
from orchestrator.store import Store
from schema.errors import HostError
from tests.factories import make_failure, make_fingerprint, make_job, make_record
from tests.stores import open_store

AT, LATER = "2026-01-02T03:00:00Z", "2026-01-02T04:00:00Z"
A = HostState(host_uid="11112222", hostname="boxa", label="lab-a", drained=True, why="fan", who="ann", changed_at=AT)
B = HostState(host_uid="11113333", hostname="boxb", labels={"rack": "b"})
TWIN = HostState(host_uid="44445555", hostname="boxb")


def test_a_host_is_as_it_was_until_somebody_drains_it(store_url: str) -> None:
    with open_store(store_url) as store:
        (before,) = store.host_states()
        assert (before.host_uid, before.hostname, before.drained, before.labels) == ("host-1", "box-a", False, {})
        store.set_drained("host-1", True, "new fan", "ann on desk", AT)
        (state,) = store.host_states()
        assert (state.drained, state.why, state.who, state.changed_at) == (True, "new fan", "ann on desk", AT)
        assert state.describe() == f"drained by ann on desk since {AT}: new fan"
        store.set_drained("host-1", False, None, "ann on desk", LATER)
        (after,) = store.host_states()
        assert (after.drained, after.why, after.changed_at, after.describe()) == (False, None, LATER, "")


def test_what_a_host_tells_the_cluster_does_not_undo_that_it_is_drained(store_url: str) -> None:
    with open_store(store_url) as store:
        store.set_drained("host-1", True, "new fan", "ann", AT)
        store.save_seen("host-1", "lab-a", {"rack": "b", "zone": "é" * 300}, LATER)
        (state,) = store.host_states()
        assert (state.drained, state.why, state.label, state.seen_at) == (True, "new fan", "lab-a", LATER)
        assert state.labels == {"rack": "b", "zone": "é" * 256}


def test_a_host_that_the_store_does_not_know_cannot_be_drained(store_url: str) -> None:
    with open_store(store_url) as store, pytest.raises(HostError, match="No host 'host-9' is known in this store"):
        store.set_drained("host-9", True, None, "ann", AT)


def test_each_host_of_a_run_is_counted_by_itself(store_url: str) -> None:
    jobs = [make_job(host_uid=uid, replica=n) for uid in ("host-1", "host-2") for n in range(3)]
    with open_store(store_url, jobs) as store:
        store.save_fingerprint(make_fingerprint(host_uid="host-2", hostname="box-b"))
        store.save_records([make_record(jobs[0]), make_record(jobs[1], failure=make_failure()), make_record(jobs[3])])
        rows = store.progress_by_host("run-1")
    told = [(row["hostname"], row["n_jobs"], row["n_measured"], row["n_failed"], row["n_remaining"]) for row in rows]
    assert told == [("box-a", 3, 1, 1, 1), ("box-b", 3, 1, 0, 2)]
    assert rows[0]["last_ended_at"].isoformat() == "2026-01-02T03:04:15+00:00"


def test_the_drained_and_the_labelled_are_picked_out() -> None:
    assert drained([A, B]) == {"11112222"}
    assert labels_of([A, B]) == {"11113333": {"rack": "b"}}


@pytest.mark.parametrize("name", ["boxa", "lab-a", "11112222", "11112"])
def test_a_host_is_found_by_name_label_and_uid(name: str) -> None:
    assert find([A, B], name) is A


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("boxaa", r"No host 'boxaa' is known in this store. Did you mean 'boxa'\?"),
        ("zzz", "Known: boxa, boxb, lab-a."),
        ("111", "No host '111' is known"),
        ("boxb", "Several hosts are called 'boxb'. Give the uid of one: 11113333, 44445555."),
        ("1111", "Several hosts are called '1111'"),
    ],
)
def test_a_host_that_is_none_or_not_one_is_refused(name: str, says: str) -> None:
    with pytest.raises(HostError, match=says):
        find([A, B, TWIN], name)


def test_a_store_without_hosts_says_how_they_become_known() -> None:
    with pytest.raises(HostError, match="become known when they first measure"):
        find([], "boxa")


def test_labels_that_ray_gives_are_not_peoples() -> None:
    assert own_labels({"ray.io/node-id": "x", "host": "uid", "rack": "b"}) == {"rack": "b"}


def test_reading_the_states_of_a_store_changes_nothing(store_url: str) -> None:
    with open_store(store_url), Store.open(store_url) as other:
        assert other.host_states() == other.host_states()
