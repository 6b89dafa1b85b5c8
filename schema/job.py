"""What is to be measured: a test, its settings, the model, and the job they make (stdlib only)."""

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from schema.canonical import digest

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
QUANTISED_CACHE_TYPES = ("q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """What is timed: prefill of `n_prompt` tokens, then decode of `n_gen`, after `n_depth` tokens of context."""

    __test__: ClassVar[bool] = False  # pytest takes every class of this name for one of its own

    n_prompt: int
    n_gen: int
    n_depth: int = 0

    @property
    def kind(self) -> Literal["pp", "tg", "pg"]:
        """`pp` prefill, `tg` decode, `pg` both in one timed run."""
        if self.n_gen == 0:
            return "pp"
        return "tg" if self.n_prompt == 0 else "pg"

    @property
    def name(self) -> str:
        """The test as llama-bench prints it: `pp512`, `tg128`, `pp512+tg128 @ d4096`."""
        parts = [f"pp{self.n_prompt}"] * bool(self.n_prompt) + [f"tg{self.n_gen}"] * bool(self.n_gen)
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")

    @property
    def n_tokens(self) -> int:
        """Tokens inside the timed window of one repetition."""
        return self.n_prompt + self.n_gen


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings as asked, in llama-bench's names; symbols (`physical`, `all`) stay symbols."""

    n_batch: int = 2048
    n_ubatch: int = 512
    n_threads: int | str = "physical"
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: str = "auto"
    n_gpu_layers: int | str = "all"
    mmap: str = "auto"

    def beyond_defaults(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, so that a new field never moves an old key."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


LOAD_SETTINGS = ("n_gpu_layers", "mmap")
"""Settings that belong to loading the model: jobs that share them share a measuring process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """A model as the plan knows it, without having built or read all of it.

    `spec` is an absolute path, or `shape:quantisation` of a synthetic model. `identity` is
    `sha256:…` of the content, or `synthetic:shape:quantisation:seed:generator`.
    """

    source: Literal["path", "synthetic"]
    spec: str
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One test of one model with one set of settings on one host, in one run."""

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

    @property
    def config_key(self) -> str:
        """Hash of test, settings as asked, model and build: the same on every host and in every run."""
        return config_key(self.test, self.settings, self.model.identity, self.build)

    @property
    def job_uid(self) -> str:
        """UNIQUE(run, host, config_key, replica) as one name."""
        return digest(["job", self.run_uid, self.host_uid, self.config_key, self.replica])[:32]


def config_key(test: Test, settings: Settings, model_identity: str, build: str) -> str:
    """Return the key under which results of different hosts and runs are the same question."""
    return digest(["config", 1, asdict(test), settings.beyond_defaults(), model_identity, build])[:32]


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
