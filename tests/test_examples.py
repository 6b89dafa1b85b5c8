"""Every example and every YAML block of the manual is a sweep that loads."""

import re
from pathlib import Path

import pytest

from orchestrator.fit import KnownModel
from orchestrator.plan import make_plan
from schema.host import Allocation, Environment, Fingerprint, Hardware
from schema.sweep import load_sweep, parse_sweep
from schema.sweep_keys import LEVELS
from worker.models import describe, reference

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
MANUAL = (ROOT / "docs" / "sweep-file.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", MANUAL, re.DOTALL)


def test_there_is_an_example_for_each_question_of_the_manual() -> None:
    assert {"tokens-per-second", "threads", "kv-cache", "depth", "quantisations"} <= {file.stem for file in EXAMPLES}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_loads_and_plans_on_a_small_machine(file: Path) -> None:
    sweep = load_sweep(file)
    small = Fingerprint(
        host_uid="small",
        uid_source="test",
        hostname="small",
        taken_at="2026-01-01T00:00:00Z",
        hardware=Hardware(arch="x86_64", n_cores_physical=2, n_cores_logical=4, memory_gib=8),
        allocation=Allocation(n_cpus=4),
        environment=Environment(),
    )
    references = {model.spec: reference(model.source, model.spec, file.parent) for model in sweep.models}
    known = {spec: KnownModel(ref=ref, sizes=describe(ref)) for spec, ref in references.items()}
    plan = make_plan(sweep, [small], known, "run-1")
    assert plan.n_jobs > 0
    assert not plan.needs_confirmation


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_manual_loads(block: str) -> None:
    assert parse_sweep(block, "manual.yaml", ROOT).tests


def test_the_manual_names_every_key() -> None:
    keys = [key for level in LEVELS.values() for key in level]
    assert [key for key in keys if f"`{key}`" not in MANUAL] == []
    used = {key for block in BLOCKS for key in re.findall(r"\w+(?=:)", block)}
    assert set(keys) - used - {"hf"} == set()


def test_what_the_manual_says_of_its_numbers_is_so() -> None:
    (tests,) = [block for block in BLOCKS if "n_prompt: [512, 2048]" in block]
    assert len(parse_sweep(tests, "manual.yaml", ROOT).tests) == 8
    (tags,) = [block for block in BLOCKS if "tags:" in block]
    sweep = parse_sweep(tags, "manual.yaml", ROOT)
    assert sweep.tags == {"why": "new driver", "driver": "1.10", "checked": "no", "day": "2026-11-30"}
