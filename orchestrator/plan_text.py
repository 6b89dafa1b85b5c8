"""A plan as lines for a person: how many jobs, which, how long, what is skipped and why; pure."""

import os
from collections.abc import Sequence

from orchestrator.estimate import GIB
from orchestrator.plan import PREVIEW_JOBS, Plan
from orchestrator.report import duration
from orchestrator.tables import escape, render
from schema.job import Job

MAX_SKIPPED = 40


def render_plan(plan: Plan, width: int | None = None) -> list[str]:
    """Return the lines; tables wider than `width` characters become blocks, as `orchestrator.tables` does it."""
    lines = [_headline(plan), ""]
    if plan.n_jobs:
        lines += [*_hosts(plan, width), "", *_jobs(plan, width), ""]
    if plan.notes:
        lines += [*(escape(note) for note in plan.notes), ""]
    if plan.skipped:
        lines += [*_skipped(plan, width), ""]
    return lines[:-1]


def _headline(plan: Plan) -> str:
    n_skipped = plan.n_asked - plan.n_jobs
    not_run = f", {n_skipped} of {plan.n_asked} asked for are not run" if n_skipped else ""
    if not plan.n_jobs:
        return f"Sweep {escape(plan.name)}: nothing to run{not_run}."
    when = f"about {_span(plan.seconds)} (a rough guess)"
    return f"Sweep {escape(plan.name)}: {_count(plan.n_jobs, 'job')} in {when}{not_run}."


def _hosts(plan: Plan, width: int | None) -> list[str]:
    rows = [
        (escape(host.hostname), host.n_jobs, f"~ {_span(host.seconds)}", f"~ {host.memory_bytes / GIB:.1f} GiB")
        for host in plan.hosts
    ]
    return list(render(("host", "jobs", "time", "memory up to"), rows, width=width))


def _jobs(plan: Plan, width: int | None) -> list[str]:
    shown = plan.preview[:PREVIEW_JOBS]
    many_hosts = len(plan.hosts) > 1
    rows = [_row(job, plan, many_hosts) for job in shown]
    columns = (*(("host",) if many_hosts else ()), "model", "test", "settings", "repeat", "time")
    lines = list(render(columns, rows, width=width))
    more = plan.n_jobs - len(shown)
    return [*lines, f"… and {more} more"] if more else lines


def _row(job: Job, plan: Plan, with_host: bool) -> Sequence[object]:
    seconds = plan.expected_seconds.get(job.job_uid)
    settings = " ".join(job.deviations())
    model = os.path.basename(job.model.spec) if job.model.source == "path" else job.model.spec
    row = (escape(model), job.test.name, settings or "defaults", job.repetitions, _time(seconds))
    return (escape(plan.hostnames[job.host_uid]), *row) if with_host else row


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"~ {_span(max(1.0, round(seconds)))}"


def _skipped(plan: Plan, width: int | None) -> list[str]:
    rows = [(escape(item.host), item.n_jobs, escape(item.what), item.reason) for item in plan.skipped[:MAX_SKIPPED]]
    more = len(plan.skipped) - len(rows)
    lines = ["Not run:", *render(("host", "jobs", "what", "why"), rows, width=width)]
    return [*lines, f"… and {more} more"] if more else lines


def _span(seconds: float) -> str:
    days = round(seconds / 86_400)
    return f"{days} days" if days >= 3 else duration(seconds)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
