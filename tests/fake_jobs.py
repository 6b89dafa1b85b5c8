"""A head's Jobs API that runs nothing: jobs live until somebody says how they ended."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeJob:
    """One job as Ray details it."""

    submission_id: str | None
    entrypoint: str = ""
    status: str = "RUNNING"
    driver_exit_code: int | None = None
    message: str = ""
    start_time: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    runtime_env: dict[str, Any] = field(default_factory=dict)
    log: str = ""
    last_words: str = ""


class FakeClient:
    """What `JobSubmissionClient` is asked, answered from a list. `fault` is raised instead of any answer."""

    def __init__(self, *jobs: FakeJob) -> None:
        self.jobs = {job.submission_id: job for job in jobs}
        self.fault: Exception | None = None
        self.stubborn = False
        self.log = "Running entrypoint for job x: y\nplanning\n"

    def submit_job(
        self,
        *,
        entrypoint: str,
        submission_id: str | None = None,
        runtime_env: dict[str, Any] | None = None,
        metadata: dict[str, str] | None = None,
    ) -> str:
        self._answer()
        uid = str(submission_id)
        if uid in self.jobs:
            raise RuntimeError(f"Request failed with status code 500: Job with submission_id {uid} already exists.")
        self.jobs[uid] = FakeJob(
            submission_id=uid,
            entrypoint=entrypoint,
            metadata=metadata or {},
            runtime_env=runtime_env or {},
            start_time=1000 + len(self.jobs),
            log=self.log,
        )
        return uid

    def stop_job(self, job_id: str) -> bool:
        job = self._job(job_id)
        lived = job.status in ("PENDING", "RUNNING")
        if lived and not self.stubborn:
            job.status = "STOPPED"
            job.log += job.last_words
        return lived

    def list_jobs(self) -> list[Any]:
        self._answer()
        return list(self.jobs.values())

    def get_job_info(self, job_id: str) -> Any:
        return self._job(job_id)

    def get_job_logs(self, job_id: str) -> str:
        return self._job(job_id).log

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        text = self._job(job_id).log
        for start in range(0, len(text), 40):
            yield text[start : start + 40]

    def _job(self, job_id: str) -> FakeJob:
        self._answer()
        if job_id not in self.jobs:
            raise RuntimeError(f"Request failed with status code 404: Job {job_id} does not exist.")
        return self.jobs[job_id]

    def _answer(self) -> None:
        if self.fault is not None:
            raise self.fault
