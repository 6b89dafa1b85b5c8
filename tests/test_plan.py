"""A plan counts what would run, says what is left out and why, and builds the jobs in the order to run them."""

import itertools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.estimate import capacity_bytes, has_gpu, load_seconds
from orchestrator.fit import KnownModel
from orchestrator.order import GROUP_JOBS, groups
from orchestrator.plan import Plan, make_plan
from orchestrator.plan_text import render_plan
from schema.errors import PlanError
from schema.host import Allocation, Build, Environment, Fingerprint, Gpu, Hardware
from schema.job import ModelRef
from schema.sweep import Sweep, parse_sweep

GIB = 1 << 30
RTX = Gpu(vendor="NVIDIA", name="RTX 3090", vram_bytes=24 * GIB)
CUDA = Build(binding="0.3", backends=("CUDA",), devices=("CUDA0", "CPU"), gpu_offload=True)
CPU = Build(binding="0.3", devices=("CPU",))


@dataclass(frozen=True)
class FakeSizes:
    n_params: int = 1_000_000_000
    weight_bytes: int = 1 * GIB
    bytes_per_token: int = 1 * GIB
    n_ctx_train: int | None = 32_768
    kv_bytes_per_token: int | None = 32_768

    def kv_bytes(self, n_ctx: int, type_k: str, type_v: str) -> int | None:
        if self.kv_bytes_per_token is None:
            return None
        halves = sum(1.0 if name == "f16" else 0.5 for name in (type_k, type_v))
        return int(self.kv_bytes_per_token * n_ctx * halves / 2)


def host(name: str = "boxa", build: Build | None = CPU, memory_gib: int | None = 32, **fields: Any) -> Fingerprint:
    allocation = fields.pop("allocation", Allocation(n_cpus=16))
    hardware: dict[str, Any] = {
        "arch": "x86_64",
        "n_cores_physical": 8,
        "n_cores_logical": 16,
        "memory_gib": memory_gib,
    }
    return Fingerprint(
        host_uid=f"uid-{name}",
        uid_source="test",
        hostname=name,
        taken_at="2026-01-01T00:00:00Z",
        hardware=Hardware(**(hardware | fields)),
        allocation=allocation,
        environment=Environment(),
        build=build,
    )


def model(spec: str = "/m/a.gguf", identity: str | None = None, **sizes: Any) -> dict[str, KnownModel]:
    ref = ModelRef(source="path", spec=spec, identity=identity or f"sha256:{spec}")
    return {spec: KnownModel(ref=ref, sizes=FakeSizes(**sizes))}


def sweep(text: str = "", models: str = "[{path: a.gguf}]") -> Sweep:
    return parse_sweep(f"models: {models}\n{text}", "f.yaml", Path("/m"))


def plan(text: str = "", *hosts: Fingerprint, **options: Any) -> Plan:
    known = options.pop("models", model())
    return make_plan(sweep(text), hosts or (host(),), known, "run-1", **options)


def accounted(made: Plan) -> bool:
    return made.n_asked == made.n_jobs + sum(item.n_jobs for item in made.skipped)


def reasons(made: Plan) -> list[str]:
    return [f"{item.n_jobs} {item.what}: {item.reason}" for item in made.skipped]


def test_the_smallest_sweep_becomes_two_jobs_with_the_sweeps_repetitions_and_timeout() -> None:
    made = plan("repeat: 3\ntimeout: 90s\n")
    assert [job.test.name for job in made.jobs] == ["pp512", "tg128"]
    assert {(job.repetitions, job.timeout_seconds, job.run_uid, job.host_uid) for job in made.jobs} == {
        (3, 90.0, "run-1", "uid-boxa")
    }
    assert (made.n_asked, made.n_jobs, made.skipped, made.is_complete) == (2, 2, (), True)


def test_each_host_gets_its_own_jobs_under_the_same_config_keys() -> None:
    made = plan("", host("boxa"), host("boxb"))
    keys = [job.config_key for job in made.jobs]
    assert len(made.jobs) == 4
    assert keys[:2] == keys[2:]
    assert len({job.job_uid for job in made.jobs}) == 4


def test_a_micro_batch_above_the_batch_is_skipped_where_it_was_asked_for() -> None:
    made = plan("params: {n_batch: [128, 2048], n_ubatch: [128, 512]}\ntests: {n_prompt: 64}\n")
    assert {(job.settings.n_batch, job.settings.n_ubatch) for job in made.jobs} == {
        (128, 128),
        (2048, 128),
        (2048, 512),
    }
    assert reasons(made) == [
        "1 n_ubatch above n_batch: 512 > 128: llama.cpp would use n_ubatch = n_batch without a word"
    ]
    assert accounted(made)


def test_a_small_batch_alone_is_measured_although_the_default_micro_batch_is_larger() -> None:
    assert plan("params: {n_batch: [128]}\n").n_jobs == 2


def test_a_quantised_v_cache_without_flash_attention_is_skipped() -> None:
    made = plan("params: {type_v: [f16, q8_0, q4_0], flash_attn: [on, off, auto]}\ntests: {n_gen: 8}\n")
    assert made.n_jobs == 7
    assert reasons(made) == ["2 flash_attn off with type_v q4_0, q8_0: a quantised V cache needs flash attention"]
    assert accounted(made)


def test_without_a_gpu_the_values_of_n_gpu_layers_become_the_first_listed() -> None:
    made = plan("params: {n_gpu_layers: [99, 0, all]}\ntests: {n_gen: 8}\n")
    assert [job.settings.n_gpu_layers for job in made.jobs] == [99]
    assert reasons(made) == ["2 n_gpu_layers 0, all: no usable GPU here, measured once as n_gpu_layers 99"]


def test_with_a_gpu_all_values_of_n_gpu_layers_are_measured() -> None:
    made = plan("params: {n_gpu_layers: [99, 0, all]}\n", host(gpus=(RTX,), build=CUDA))
    assert (made.n_jobs, made.skipped) == (6, ())


@pytest.mark.parametrize(
    ("gpus", "build", "usable"),
    [
        ((), CPU, False),
        ((RTX,), CPU, False),
        ((RTX,), CUDA, True),
        ((), CUDA, True),
        ((), Build(binding="0.3", devices=("CPU",), gpu_offload=True), False),
        ((RTX,), None, True),
        ((), None, False),
    ],
)
def test_a_gpu_counts_when_it_is_there_and_the_build_can_use_it(
    gpus: tuple[Gpu, ...], build: Build, usable: bool
) -> None:
    assert has_gpu(host(gpus=gpus, build=build)) == usable


def test_thread_counts_that_are_the_same_number_are_measured_once_under_a_symbol() -> None:
    made = plan("params: {n_threads: [4, 8, physical, all, 16]}\ntests: {n_gen: 8}\n")
    assert [job.settings.n_threads for job in made.jobs] == [4, "physical", "all"]
    assert reasons(made) == [
        "2 n_threads 8 = physical, 16 = all: the same number of threads on this host, measured once"
    ]


def test_of_two_symbols_for_the_same_number_the_first_listed_stays() -> None:
    small = host(n_cores_logical=8)
    assert [job.settings.n_threads for job in plan("params: {n_threads: [all, physical]}\n", small).jobs] == ["all"] * 2


def test_the_allocation_limits_what_the_symbols_mean() -> None:
    made = plan("params: {n_threads: [2, physical, all]}\n", host(allocation=Allocation(n_cpus=2)))
    assert {job.settings.n_threads for job in made.jobs} == {"physical"}


def test_a_test_longer_than_the_models_context_is_skipped() -> None:
    made = plan("tests: {n_prompt: 512, n_gen: 128, n_depth: [0, 32640]}\n")
    assert [job.test.name for job in made.jobs] == ["pp512", "tg128", "tg128 @ d32640"]
    assert reasons(made) == ["1 /m/a.gguf: pp512 @ d32640: longer than the 32768 tokens the model was trained for"]
    assert accounted(made)


def test_what_does_not_fit_in_memory_is_skipped_by_kind_of_cache() -> None:
    made = plan(
        "params: {type_k: [f16, q8_0], type_v: [f16, q8_0]}\ntests: {n_gen: 8, n_depth: [0, 30000]}\n",
        host(memory_gib=3),
        models=model(kv_bytes_per_token=65_536),
    )
    deep = {(job.settings.type_k, job.settings.type_v) for job in made.jobs if job.test.n_depth}
    assert deep == {("f16", "q8_0"), ("q8_0", "f16"), ("q8_0", "q8_0")}
    assert "1 /m/a.gguf: tg8 @ d30000: does not fit in memory: needs up to 3.4 GiB of 3.0 GiB" in reasons(made)
    assert accounted(made)


def test_the_memory_we_may_use_counts_not_only_what_is_built_in() -> None:
    limited = host(allocation=Allocation(n_cpus=4, memory_limit_bytes=1 * GIB))
    made = plan("", limited)
    assert made.n_jobs == 0
    assert "of 1.0 GiB" in reasons(made)[0]


def test_unknown_memory_or_cache_sizes_skip_nothing() -> None:
    assert plan("", host(memory_gib=None), models=model(weight_bytes=900 * GIB)).n_jobs == 2
    assert plan("", models=model(kv_bytes_per_token=None, n_ctx_train=None)).n_jobs == 2


@pytest.mark.parametrize(
    ("gpus", "layers", "on_gpu", "gib"),
    [
        ((), 0, False, 32),
        ((RTX,), 0, False, 32),
        ((RTX,), "all", True, 24),
        ((RTX, RTX), "all", True, 48),
        ((RTX,), "some", True, 56),
        ((Gpu(vendor="Apple", name="M4"),), "all", True, 32),
    ],
)
def test_the_capacity_is_the_memory_that_the_layers_go_to(
    gpus: tuple[Gpu, ...], layers: int | str, on_gpu: bool, gib: int
) -> None:
    assert capacity_bytes(host(gpus=gpus), layers, on_gpu) == gib * GIB


def test_a_host_asked_for_by_name_that_is_not_known_is_listed_with_the_nearest() -> None:
    made = plan("hosts: [boxa, boxz, 'ram_gib>=512']\n", host("boxa"), host("boxb"))
    assert {job.host_uid for job in made.jobs} == {"uid-boxa"}
    assert [(item.host, item.n_jobs) for item in made.skipped] == [("boxz", 2), ("ram_gib>=512", 0)]
    assert "no host of this name is known; the nearest is box" in made.skipped[0].reason
    assert accounted(made)


def test_a_host_that_is_known_twice_does_its_jobs_once() -> None:
    assert plan("", host("boxa"), host("boxa")).n_jobs == 2


def test_a_model_that_is_absent_is_skipped_with_its_reason() -> None:
    two = sweep(models="[{path: a.gguf}, {path: b.gguf}]")
    made = make_plan(two, [host()], model(), "run-1", absent={"/m/b.gguf": "there is no such file"})
    assert reasons(made) == ["2 model /m/b.gguf: there is no such file"]
    assert (made.n_jobs, accounted(made)) == (2, True)


def test_two_names_of_one_content_are_measured_once() -> None:
    two = sweep(models="[{path: a.gguf}, {path: b.gguf}]")
    known = model("/m/a.gguf", "sha256:1") | model("/m/b.gguf", "sha256:1")
    made = make_plan(two, [host()], known, "run-1")
    assert reasons(made) == ["2 model /m/b.gguf: the same content as /m/a.gguf, measured once"]
    assert len({job.job_uid for job in made.jobs}) == made.n_jobs == 2


def test_the_count_and_the_jobs_agree_whatever_the_sweep() -> None:
    chance = random.Random(7)
    axes = {
        "n_batch": ["64", "128", "2048"],
        "n_ubatch": ["64", "512"],
        "n_threads": ["4", "8", "physical", "all"],
        "type_k": ["f16", "q8_0"],
        "type_v": ["f16", "q4_0"],
        "flash_attn": ["on", "off", "auto"],
        "n_gpu_layers": ["0", "all", "20"],
        "load_mode": ["mmap", "none"],
    }
    for _ in range(60):
        params = {name: chance.sample(values, chance.randint(1, 2)) for name, values in axes.items()}
        depths = chance.sample(["0", "1000", "20000", "40000"], 2)
        text = "tests: {n_prompt: [64, 512], n_gen: 16, n_depth: [" + ", ".join(depths) + "]}\nparams: {"
        text += ", ".join(f"{name}: [{', '.join(values)}]" for name, values in params.items()) + "}\n"
        gpus = chance.choice([(), (RTX,)])
        machine = host(gpus=gpus, build=CUDA if gpus else CPU, memory_gib=chance.choice([2, 32]))
        made = plan(text, machine, host("boxb"), models=model(kv_bytes_per_token=65_536))
        assert accounted(made)
        assert made.n_jobs == len(made.jobs) == len({job.job_uid for job in made.jobs})
        loads = (sum(share.seconds for share in made.hosts) - sum(made.expected_seconds.values())) / load_seconds(
            FakeSizes()
        )
        assert loads == pytest.approx(round(loads), abs=1e-6)


LARGE = """
tests:
  pg: [{pairs}]
  n_depth: [0, 4096, 16384]
params:
  n_threads: [1, 2, 4, 8, 12, 16, 24, 32]
  n_batch: [512, 1024, 2048]
  n_ubatch: [128, 256, 512]
  type_k: [f16, q8_0, q4_0]
  type_v: [f16, q8_0, q4_0]
  flash_attn: [true, false]
  mmap: [true, false]
"""


def large_sweep() -> tuple[Sweep, dict[str, KnownModel]]:
    pairs = itertools.product((128, 256, 512, 1024, 2048, 4096), (32, 64, 128, 256))
    text = LARGE.format(pairs=", ".join(f"[{n_prompt}, {n_gen}]" for n_prompt, n_gen in pairs))
    names = ["a", "b", "c", "d"]
    known: dict[str, KnownModel] = {}
    for name in names:
        known |= model(f"/m/{name}.gguf")
    return sweep(text, "[" + ", ".join(f"{{path: {name}.gguf}}" for name in names) + "]"), known


def test_three_quarters_of_a_million_combinations_are_counted_without_being_built() -> None:
    asked, known = large_sweep()
    made = make_plan(asked, [host()], known, "run-1")
    assert made.n_asked == asked.n_combinations == 746_496
    assert made.n_jobs == 746_496 * 4 // 6
    assert (made.jobs, len(made.preview), made.is_complete, made.needs_confirmation) == ((), 40, False, True)
    assert len(made.expected_seconds) == 40
    assert accounted(made)
    assert any("… and 497624 more" in line for line in render_plan(made))


def test_a_sweep_too_large_to_count_is_refused() -> None:
    numbers = ", ".join(str(number) for number in range(1, 257))
    text = f"tests: {{n_prompt: [{numbers}], n_depth: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]}}\n"
    text += f"params: {{n_threads: [{numbers}], type_k: [f16, f32, q8_0]}}\n"
    with pytest.raises(PlanError, match=r"3145728 combinations, too many to count\. Split it"):
        plan(text)


def test_the_jobs_are_built_above_the_limit_only_when_the_limit_is_lifted() -> None:
    text = "params: {n_threads: [1, 2, 3]}\n"
    assert plan(text, job_limit=5).jobs == ()
    assert len(plan(text, job_limit=6).jobs) == 6
    assert len(plan(text, job_limit=None).jobs) == 6


@pytest.mark.parametrize(
    ("text", "asks"),
    [("", False), ("tests: {n_gen: 100000, n_depth: 0}\nrepeat: 100\n", True)],
)
def test_a_long_plan_needs_a_yes(text: str, asks: bool) -> None:
    assert plan(text, models=model(n_ctx_train=None, kv_bytes_per_token=1)).needs_confirmation == asks


def test_many_short_jobs_need_a_yes() -> None:
    numbers = ", ".join(str(number) for number in range(1, 41))
    made = plan(
        f"tests: {{n_gen: 1}}\nrepeat: 1\nparams: {{n_threads: [{numbers}], n_batch: [{numbers}]}}\n",
        models=model(weight_bytes=1, bytes_per_token=1, n_params=1),
    )
    assert (made.n_jobs, made.needs_confirmation) == (1600, True)


def test_known_rates_replace_the_guesses() -> None:
    slow = {("uid-boxa", "sha256:/m/a.gguf", "tg"): 0.1, ("uid-boxa", "sha256:/m/a.gguf", "pp"): 1.0}
    guessed, known = plan(""), plan("", known_rates=slow)
    assert guessed.seconds < 600
    assert known.seconds > 5 * (512 + 1280) + 512


def test_deeper_and_longer_jobs_are_expected_to_take_longer() -> None:
    made = plan("tests: {n_gen: [16, 64], n_depth: [0, 4096]}\n")
    seconds = {job.test.name: made.expected_seconds[job.job_uid] for job in made.jobs}
    assert seconds["tg16"] < seconds["tg64"] < seconds["tg64 @ d4096"]
    assert seconds["tg16"] < seconds["tg16 @ d4096"]


def test_the_memory_expected_is_that_of_the_largest_job_that_runs() -> None:
    made = plan("tests: {n_gen: 8, n_depth: [0, 8000]}\n")
    assert made.hosts[0].memory_bytes == int((GIB + 32_768 * 8008) * 1.1) + (256 << 20)


def test_jobs_that_share_a_process_are_neighbours_and_groups_cut_where_they_do_not() -> None:
    made = plan("params: {mmap: [on, off], n_gpu_layers: [0, all], n_threads: [2, 4]}\n", host(gpus=(RTX,), build=CUDA))
    parts = groups(made.jobs)
    assert [len(part) for part in parts] == [4, 4, 4, 4]
    assert len({(part[0].settings.load_mode, part[0].settings.n_gpu_layers) for part in parts}) == 4
    assert [job for part in parts for job in part] == list(made.jobs)


def test_a_group_is_cut_at_fifty_jobs() -> None:
    numbers = ", ".join(str(number) for number in range(1, 121))
    made = plan(f"tests: {{n_prompt: [{numbers}]}}\n")
    assert [len(part) for part in groups(made.jobs)] == [GROUP_JOBS, GROUP_JOBS, 20]


def test_a_group_is_cut_at_about_ten_expected_minutes_but_never_empty() -> None:
    made = plan("tests: {n_prompt: [1, 2, 3, 4]}\n")
    expected = {job.job_uid: seconds for job, seconds in zip(made.jobs, (300.0, 299.0, 30.0, 5000.0), strict=True)}
    assert [len(part) for part in groups(made.jobs, expected)] == [2, 1, 1]
    assert groups([]) == ()


def test_a_plan_reads_as_lines_with_count_time_memory_jobs_and_what_is_skipped() -> None:
    made = plan("params: {n_threads: [2, 8, physical], flash_attn: on}\n")
    text = "\n".join(render_plan(made))
    assert text.startswith("Sweep f: 4 jobs in about ")
    assert "2 of 6 asked for are not run" in text
    assert "memory up to" in text
    assert "a.gguf  pp512  n_threads=2 flash_attn=on" in text
    assert "Not run:" in text
    assert "8 = physical" in text


def test_a_plan_of_nothing_says_so_and_why() -> None:
    lines = render_plan(plan("hosts: [boxz]\n"))
    assert lines[0] == "Sweep f: nothing to run, 2 of 2 asked for are not run."
    assert any("no host of this name is known; the nearest is boxa" in line for line in lines)


def test_a_long_plan_shows_forty_jobs_and_counts_the_rest() -> None:
    numbers = ", ".join(str(number) for number in range(1, 61))
    lines = render_plan(plan(f"tests: {{n_prompt: [{numbers}]}}\n"))
    assert "… and 20 more" in lines
    assert sum("a.gguf" in line for line in lines) == 40


def test_several_hosts_are_named_in_the_table_of_jobs_and_work_side_by_side() -> None:
    made = plan("", host("boxa"), host("boxb"))
    assert sum(line.startswith("boxb") for line in render_plan(made)) == 3
    assert made.seconds == max(share.seconds for share in made.hosts)


def test_names_in_a_plan_cannot_steer_the_terminal() -> None:
    made = plan("", host("box\x1b[31m"))
    assert not any("\x1b" in line for line in render_plan(made))
