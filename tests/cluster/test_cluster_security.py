"""What answers whom in a lab, tried at every port; the manual's table is made of the same."""

import pytest

from tests.cluster.lab import Lab
from tests.cluster.security import REFUSALS, Row, actions, doors, started
from tests.cluster.test_cluster_lab import stop_all

pytestmark = pytest.mark.cluster
SHUT = {"not open", "refused", *(f"refused ({answer})" for answer in REFUSALS)}


def test_what_could_make_a_program_run_is_refused_without_the_token_and_with_a_wrong_one(hosts: Lab) -> None:
    stop_all(hosts)
    started(hosts, host="cpu")
    found: list[Row] = [*actions(hosts, host="cpu"), *doors(hosts, host="cpu")]
    stop_all(hosts)
    open_doors = [row for row in found if row.starts_work and not {row.none, row.wrong} <= SHUT | {"-"}]
    assert not open_doors
    accepted = {row.what for row in found if row.right == "accepted"}
    assert accepted >= {"join as a host", "be a driver"}
