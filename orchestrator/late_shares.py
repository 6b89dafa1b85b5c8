"""The shares of hosts that come while a run goes on."""

from collections.abc import Sequence
from typing import Any

from orchestrator.members import hosts_of, members
from orchestrator.order import Expected
from orchestrator.prepare import Prepared, share_for, words
from orchestrator.roll_call import RollCall
from orchestrator.store import Store
from schema.run import Run


class LateShares:
    """Plans and stores the share of a host that comes while a run goes on."""

    def __init__(self, store: Store, run: Run, prepared: Prepared, call: RollCall) -> None:
        self._store, self._run, self._sweep = store, run, prepared.sweep
        self.words = (*words(prepared.sweep), call.python)
        self.planned = frozenset(fingerprint.host_uid for fingerprint in prepared.fingerprints)

    def __call__(self, label: str, answer: Any) -> Sequence[Expected]:
        """Return the share of the host, which is then in the store."""
        member = hosts_of(members()).get(label)
        fingerprint, jobs = share_for(self._sweep, self._run.run_uid, answer, member.labels if member else {})
        self._store.save_fingerprint(fingerprint)
        self._store.save_run(self._run, [job for job, _ in jobs])
        return jobs
