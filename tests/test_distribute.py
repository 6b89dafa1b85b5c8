"""Who has a model, who reads it whole, who fetches it from whom; and what only looks alike stays two."""

from orchestrator.distribute import Fetch, Reading, distribute, fetched_ref, readings
from worker.model_search import Content, Part
from worker.model_transfer import Source

SIZE = 400 * 10**9


def content(path: str, sha256: str | None = None, place: str | None = "nas", quick: str = "q") -> Content:
    part = Part(name="tiny.gguf", file_bytes=SIZE, quick=quick, sha256=sha256, place=place)
    return Content(path=path, parts=(part,))


def test_of_hosts_that_see_one_file_only_one_reads_it() -> None:
    found = {"boxa": content("/mnt/m.gguf"), "boxb": content("/nas/m.gguf"), "boxc": content("/mnt/m.gguf")}
    assert readings(found) == (
        Reading(host="boxa", path="/mnt/m.gguf", others={"boxb": "/nas/m.gguf", "boxc": "/mnt/m.gguf"}),
    )


def test_files_of_their_own_are_each_read_and_a_host_without_one_reads_nothing() -> None:
    found = {"boxa": content("/m", place="a"), "boxb": content("/m", place="b"), "boxc": None}
    assert [task.host for task in readings(found)] == ["boxa", "boxb"]
    unknown = {"boxa": content("/m", place=None), "boxb": content("/m", place=None)}
    assert [task.host for task in readings(unknown)] == ["boxa", "boxb"]


def test_who_has_read_the_file_tells_the_others_and_nobody_reads_it_again() -> None:
    found = {"boxa": content("/mnt/m"), "boxb": content("/nas/m", sha256="s")}
    assert readings(found) == (Reading(host="boxb", path="/nas/m", others={"boxa": "/mnt/m"}),)
    assert readings({"boxb": content("/nas/m", sha256="s")}) == ()


def test_hosts_that_see_one_file_measure_it_under_one_identity_before_anybody_has_read_it() -> None:
    found = {"boxa": content("/mnt/m"), "boxb": content("/nas/m")}
    planned = distribute("m", found["boxa"], found, allowed=False)
    assert planned.refs["boxa"].identity == planned.refs["boxb"].identity
    assert [ref.spec for ref in planned.refs.values()] == ["/mnt/m", "/nas/m"]


def test_equal_headers_on_two_disks_are_two_models_until_they_are_read() -> None:
    found = {"boxa": content("/m", place="a"), "boxb": content("/m", place="b"), "boxc": content("/m", place=None)}
    planned = distribute("m", found["boxa"], found, allowed=False)
    identities = [ref.identity for ref in planned.refs.values()]
    assert len(set(identities)) == 3
    assert {identity.split(":")[1] for identity in identities} == {found["boxa"].quick}


def test_a_file_with_other_bytes_is_not_the_model_whatever_it_is_called() -> None:
    found = {"boxa": content("/m", "s1", "a"), "boxb": content("/x", "s1", "b"), "boxc": content("/m", "s2", "c")}
    planned = distribute("/m", found["boxa"], found, allowed=False)
    assert set(planned.refs) == {"boxa", "boxb"}
    assert planned.absent == {
        "boxc": "/m is not on boxc: /m there has another content, and it is on boxa, boxb. "
        "Copy it, or allow `--distribute`."
    }


def test_a_file_that_may_be_the_model_is_loaded_as_it_and_checked_there() -> None:
    wanted = content("/m", "s1", "a")
    planned = distribute("m", wanted, {"boxb": content("/m", None, "b")}, allowed=False)
    assert planned.refs["boxb"].identity == wanted.identity


def test_hosts_that_lack_it_fetch_it_from_those_that_have_it_in_turn() -> None:
    holder, other = content("/m", "s", "a"), content("/n", "s", "b")
    found = {"boxa": holder, "boxb": None, "boxc": other, "boxd": None, "boxe": None}
    planned = distribute("m", holder, found, allowed=True)
    assert planned.fetches == (
        Fetch(to="boxb", source=Source(host="boxa", content=holder)),
        Fetch(to="boxd", source=Source(host="boxc", content=other)),
        Fetch(to="boxe", source=Source(host="boxa", content=holder)),
    )
    assert planned.absent == {}
    assert fetched_ref(holder, "/home/m").identity == planned.refs["boxa"].identity


def test_nothing_is_fetched_that_nobody_has_read_or_that_was_not_allowed() -> None:
    found = {"boxa": content("/m"), "boxb": None}
    planned = distribute("m", content("/m"), found, allowed=True)
    assert planned.fetches == ()
    assert "Read it whole on one of them first" in planned.absent["boxb"]
    assert "allow `--distribute`" in distribute("m", content("/m"), found, allowed=False).absent["boxb"]
    assert "no host has it" in distribute("m", content("/m", "s"), {"boxb": None}, allowed=True).absent["boxb"]


def test_a_model_of_the_hub_is_fetched_from_there() -> None:
    spec = "user/repo@abc/m.gguf"
    wanted = content("/hub/m", "s")
    planned = distribute(spec, wanted, {"boxa": wanted, "boxb": None}, allowed=True, from_hub=True)
    assert planned.fetches == (Fetch(to="boxb", source=None),)
    assert (planned.refs["boxb"].source, planned.refs["boxb"].spec) == ("hf", spec)
    assert planned.refs["boxb"].identity == wanted.identity
    kept = distribute(spec, wanted, {"boxb": None}, allowed=False, from_hub=True)
    assert (kept.refs, list(kept.absent)) == ({}, ["boxb"])
