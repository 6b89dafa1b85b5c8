"""A driver with all that it needs around it, for the length of a block: Ray, and the spool being drained."""

import contextlib
from collections.abc import Iterator

from orchestrator.cluster import local_cluster
from orchestrator.driver import Driver
from orchestrator.fleet import Fleet
from orchestrator.spool import Drainer, Spool
from schema.errors import ClusterError


@contextlib.contextmanager
def driving(driver: Driver, spool: Spool, local_host_uid: str | None) -> Iterator[Driver]:
    """Drain the spool for the length of the block, with Ray on this machine where `local_host_uid` names it.

    Before the block everything that earlier, dead runs left on the hosts is in the store; after it,
    however it ends, everything that was measured is.
    """
    with contextlib.ExitStack() as outer:
        drainer = outer.enter_context(Drainer(spool, driver.store.save_entries))
        if local_host_uid is not None:
            driver.show.stage("starting Ray on this machine")
            outer.enter_context(local_cluster(local_host_uid))
        if isinstance(driver.hosts, Fleet):
            outer.enter_context(driver.hosts)
        driver.take_over()
        drainer.flush()
        with contextlib.ExitStack() as at_the_end:
            at_the_end.callback(driver.acknowledge)
            at_the_end.callback(drainer.flush)
            at_the_end.callback(driver.take_over)
            try:
                yield driver
            except ClusterError:
                at_the_end.pop_all()  # the head is gone: journals are taken over when it is back
                raise
