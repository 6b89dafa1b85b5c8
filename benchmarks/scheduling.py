"""What the orchestrator itself costs: thousands of jobs over simulated hosts, planned, queued, spooled and stored.

    python benchmarks/scheduling.py [--hosts 10 100 1000] [--jobs 100] [--directory DIR]

Everything is real but the hosts, which live on a virtual clock (`benchmarks/virtual_hosts.py`): a job costs only what
planning, sending, hearing and storing it costs. Printed for each number of hosts: seconds to plan, CPU of a job,
the virtual time beside the ideal (the longest queue), the peak of memory. Ends with 1 where a job costs more
than 5 ms of CPU, planning all takes more than 10 s, or the cost of a job grows by more than a half from the
fewest hosts to the most.
"""

import argparse
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.virtual_hosts import VirtualHosts, fingerprint
from orchestrator.driver import Driver
from orchestrator.fit import KnownModel
from orchestrator.intake import Intake
from orchestrator.journals import Journals
from orchestrator.plan import Plan, make_plan
from orchestrator.spool import Drainer, Spool
from orchestrator.store import Store
from schema.host import Fingerprint
from schema.job import Job
from schema.run import Run
from schema.sweep import parse_sweep
from worker.models import describe, reference

JOB_CPU_SECONDS = 0.005
PLAN_SECONDS = 10.0
GROWTH = 1.5
FLUSH_SECONDS = 3600.0


@dataclass(frozen=True)
class Cost:
    """What a run took: of the planner, of a job, on the virtual clock, and at its ideal."""

    n_hosts: int
    n_jobs: int
    plan_seconds: float
    save_seconds: float
    job_cpu_seconds: float
    virtual_seconds: float
    ideal_seconds: float
    peak_bytes: int
    wall_seconds: float


class Silent:
    """A show that shows nothing."""

    def stage(self, text: str, fraction: float | None = None) -> None:
        """Say nothing."""

    def step(self, text: str) -> None:
        """Say nothing."""

    def job_started(self, label: str) -> None:
        """Say nothing."""

    def sample(self, repetition: int, of: int, rate: float | None) -> None:
        """Say nothing."""

    def job_ended(
        self, label: str, rate: float | None, spread: float | None = None, failure: str | None = None
    ) -> None:
        """Say nothing."""

    def idle(self) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Print a remark."""
        print(text, file=sys.stderr)

    def more(self, n_jobs: int, expected_seconds: float | None = None) -> None:
        """Say nothing."""

    def lane(self, host: str) -> "Silent":
        """Return this."""
        return self


def planned(hosts: list[Fingerprint], n_jobs: int, run_uid: str) -> Plan:
    """Plan a sweep of `n_jobs` for each host: two models, ten lengths, as many micro-batches as it takes."""
    batches = [32 * (n + 1) for n in range(max(1, n_jobs // 20))]
    text = (
        'models: [{synthetic: "llama-3.2-1b:Q4_K_M"}, {synthetic: "qwen2.5-0.5b:Q4_K_M"}]\n'
        f"tests: {{n_prompt: {[64 * (n + 1) for n in range(10)]}}}\n"
        f"params: {{n_ubatch: {batches}, n_threads: [physical]}}\n"
    )
    sweep = parse_sweep(text, "scheduling.yaml", Path("/"))
    models = {}
    for entry in sweep.models:
        ref = reference(entry.source, entry.spec, Path("/"))
        models[entry.spec] = KnownModel(ref=ref, sizes=describe(ref))
    return make_plan(sweep, hosts, models, run_uid, job_limit=None)


def seconds_of(job: Job) -> float:
    """Return how long a job takes: from 1 s to 10 s, by its test."""
    return job.test.n_prompt / 64


def measure(n_hosts: int, n_jobs: int, directory: Path) -> Cost:
    """Plan and run a sweep on `n_hosts` simulated hosts, and return what that cost."""
    run = Run(
        run_uid=f"{n_hosts:032x}",
        name="scheduling",
        sweep_text="",
        sweep_sha256="0" * 64,
        created_at="2026-01-01T00:00:00Z",
        tokfleet_version="0",
    )
    hosts = [fingerprint(number) for number in range(n_hosts)]
    begun = time.monotonic()
    plan = planned(hosts, n_jobs, run.run_uid)
    plan_seconds = time.monotonic() - begun
    with Store.open(str(directory / "runs.sqlite"), create=True) as store:
        for host in hosts:
            store.save_fingerprint(host)
        begun = time.monotonic()
        store.save_run(run, plan.jobs)
        save_seconds = time.monotonic() - begun
        with Spool.open(directory / "spool.sqlite") as spool:
            cpu, wall = time.process_time(), time.monotonic()
            virtual = drive(store, spool, hosts, plan, run.run_uid)
            cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        (row,) = store.progress(run.run_uid)
        assert row["n_measured"] == plan.n_jobs, row
    total: dict[str, float] = {}
    for job in plan.jobs:
        total[job.host_uid] = total.get(job.host_uid, 0.0) + seconds_of(job)
    return Cost(
        n_hosts=n_hosts,
        n_jobs=plan.n_jobs,
        plan_seconds=plan_seconds,
        save_seconds=save_seconds,
        job_cpu_seconds=cpu / plan.n_jobs,
        virtual_seconds=virtual,
        ideal_seconds=max(total.values()),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        wall_seconds=wall,
    )


def drive(store: Store, spool: Spool, hosts: list[Fingerprint], plan: Plan, run_uid: str) -> float:
    """Measure the plan and return the virtual seconds that it took; all of it is in the store afterwards."""
    intake = Intake(spool)
    virtual = VirtualHosts(hosts, intake.keep, seconds_of)
    journals = Journals(store, intake, run_uid, print)
    driver = Driver(store=store, journals=journals, hosts=virtual, run_uid=run_uid, show=Silent())
    with Drainer(spool, store.save_entries) as drainer:
        driver.take_over()
        driver.measure([(job, plan.expected_seconds[job.job_uid]) for job in plan.jobs], Silent())
        drainer.flush(FLUSH_SECONDS)
    assert virtual.overlaps == 0, "a host had two groups at once"
    return virtual.now()


def main(numbers: list[int], n_jobs: int, base: Path | None) -> int:
    """Print what each number of hosts costs, and return the exit status."""
    costs = []
    for n_hosts in numbers:
        with tempfile.TemporaryDirectory(dir=base) as directory:
            cost = measure(n_hosts, n_jobs, Path(directory))
        costs.append(cost)
        print(
            f"{cost.n_hosts} hosts, {cost.n_jobs} jobs: planned in {cost.plan_seconds:.2f} s, saved in "
            f"{cost.save_seconds:.2f} s; {1e3 * cost.job_cpu_seconds:.2f} ms of CPU a job; "
            f"{cost.virtual_seconds:.0f} virtual s, ideal {cost.ideal_seconds:.0f}; "
            f"peak {cost.peak_bytes / 2**20:.0f} MiB; {cost.wall_seconds:.0f} s in all",
            flush=True,
        )
    return int(not all(_verdicts(costs)))


def _verdicts(costs: list[Cost]) -> list[bool]:
    dearest = max(cost.job_cpu_seconds for cost in costs)
    slowest = max(cost.plan_seconds for cost in costs)
    growth = costs[-1].job_cpu_seconds / costs[0].job_cpu_seconds
    goals = [
        (f"CPU of a job at most {1e3 * JOB_CPU_SECONDS:g} ms: {1e3 * dearest:.2f}", dearest <= JOB_CPU_SECONDS),
        (f"planning at most {PLAN_SECONDS:g} s: {slowest:.2f}", slowest <= PLAN_SECONDS),
        (f"a job costs at most {GROWTH:g} times more with the most hosts: {growth:.2f}", growth <= GROWTH),
    ]
    for text, holds in goals:
        print(f"{'yes' if holds else 'NO '}  {text}")
    return [holds for _, holds in goals]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    sys.exit(main(arguments.hosts, arguments.jobs, arguments.directory))
