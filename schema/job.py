"""What is to be measured: a test, its settings, the model, and the job they make (stdlib only)."""

import functools
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from schema.canonical import digest
from schema.settings import Settings

VERIFY_PASSES = 8
"""Timed passes in one repetition of a `verify` test; between them the tokens are taken back, untimed."""

ROUND_JOBS = 8
"""Jobs of one process that take their repetitions in turn, at most: so many contexts are in memory at once."""

HUB_FORM = r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w.-]+)?(:[\w.-]+|(/[\w.+-]+)*/[\w.+-]+\.gguf)?"
"""USER/REPOSITORY, perhaps @REVISION, then :QUANTISATION, /FILE.gguf or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """What is timed: prefill of `n_prompt` tokens, then decode of `n_gen`, after `n_depth` tokens of context.

    With `n_parallel` sequences each has its own context, prompt and tokens. `n_verify` instead of
    both times one pass over that many tokens of one sequence, as speculative decoding pays it.
    """

    __test__: ClassVar[bool] = False  # pytest takes every class of this name for one of its own

    n_prompt: int
    n_gen: int
    n_depth: int = 0
    n_parallel: int = 1
    n_verify: int = 0

    @property
    def kind(self) -> Literal["pp", "tg", "pg", "verify"]:
        """`pp` prefill, `tg` decode, `pg` both in one timed run, `verify` passes over a few tokens at once."""
        if self.n_verify:
            return "verify"
        if self.n_gen == 0:
            return "pp"
        return "tg" if self.n_prompt == 0 else "pg"

    @property
    def name(self) -> str:
        """The test as llama-bench prints it: `pp512`, `tg128`, `pp512+tg128 @ d4096`; ours add `verify4` and `x8`."""
        parts = [f"pp{self.n_prompt}"] * bool(self.n_prompt) + [f"tg{self.n_gen}"] * bool(self.n_gen)
        parts += [f"verify{self.n_verify}"] * bool(self.n_verify)
        depth = f" @ d{self.n_depth}" if self.n_depth else ""
        return "+".join(parts) + depth + (f" x{self.n_parallel}" if self.n_parallel > 1 else "")

    @property
    def n_tokens(self) -> int:
        """Tokens inside the timed window of one repetition, over all sequences."""
        if self.n_verify:
            return self.n_verify * VERIFY_PASSES
        return (self.n_prompt + self.n_gen) * self.n_parallel

    @property
    def n_ctx(self) -> int:
        """Tokens of context that the test needs, over all sequences."""
        return self.n_parallel * (self.n_depth + self.n_prompt + self.n_gen + self.n_verify)

    def key(self) -> dict[str, int]:
        """Return what identifies the test; a field that was added later counts only beyond its default."""
        late = {"n_parallel": 1, "n_verify": 0}
        return {name: value for name, value in asdict(self).items() if late.get(name) != value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """A model as the plan knows it, without having built or read all of it.

    `spec` is an absolute path, `shape:quantisation` or `like:PATH` of a synthetic model, or
    `user/repository@revision/file` of one on the Hugging Face hub. `identity` is `sha256:…` of the
    content, or `synthetic:shape:quantisation:seed:generator`.
    """

    source: Literal["path", "synthetic", "hf"]
    spec: str
    identity: str

    @property
    def name(self) -> str:
        """The model as people read it: the file's name, or shape and quantisation of a synthetic one."""
        return self.spec if self.source == "synthetic" else self.spec.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)  # no slots: its keys are computed once and kept
class Job:
    """One test of one model with one set of settings on one host, in one run.

    `interleaved`: its repetitions are taken in turn with those of other jobs of its process. `across` says what
    alternates in blocks, such as `builds`, each `replica` of the job in a process of its own.
    """

    run_uid: str
    host_uid: str
    model: ModelRef
    test: Test
    settings: Settings
    build: str = "default"
    replica: int = 0
    repetitions: int = 5
    seed: int = 0
    timeout_seconds: float = 1800.0
    interleaved: bool = False
    across: str | None = None

    @functools.cached_property
    def config_key(self) -> str:
        """Hash of test, settings as asked, model and build: the same on every host and in every run."""
        return config_key(self.test, self.settings, self.model.identity, self.build)

    @functools.cached_property
    def job_uid(self) -> str:
        """UNIQUE(run, host, config_key, replica) as one name."""
        return digest(["job", self.run_uid, self.host_uid, self.config_key, self.replica])[:32]

    @property
    def label(self) -> str:
        """The job as people read it: model, test, build, and what differs from the default settings."""
        return " ".join(part for part in (self.model.name, self.test.name, *self.deviations()) if part)

    def deviations(self) -> list[str]:
        """Return in words its round, its build and its settings, as far as they are not the default ones."""
        told = [f"round={self.replica + 1}"] * bool(self.across or self.replica)
        told += [f"build={self.build}"] * (self.build != "default")
        return told + [f"{name}={value}" for name, value in self.settings.beyond_defaults().items()]


def config_key(test: Test, settings: Settings, model_identity: str, build: str) -> str:
    """Return the key under which results of different hosts and runs are the same question."""
    return digest(["config", 1, test.key(), settings.beyond_defaults(), model_identity, build])[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One try at a job; `attempt_uid` is made before anything runs."""

    job: Job
    attempt_uid: str
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Assignments that share host, model, build and load settings, hence one measuring process."""

    group_uid: str
    assignments: tuple[Assignment, ...]

    @property
    def model(self) -> ModelRef:
        """The model that every assignment of the group measures."""
        return self.assignments[0].job.model

    @property
    def build(self) -> str:
        """The name of the build that every assignment of the group is measured with."""
        return self.assignments[0].job.build
