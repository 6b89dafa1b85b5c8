"""The real llama.cpp on the real 270M Gemma, in real measuring processes."""

import json
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from schema.job import Assignment, Job, ModelRef, Test
from schema.settings import Settings
from worker.variables import child_environment

pytestmark = pytest.mark.model

DEFAULTS = Settings(n_threads=1)  # one thread never waits for another, however busy the machine is


def measure(
    path: Path,
    *jobs: tuple[Test, Settings],
    repetitions: int = 2,
    seed: int = 0,
    path_first: Path | None = None,
    interleaved: bool = False,
) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """Return for each job its `attempt_end` and its samples, all measured in one process."""
    model = ModelRef(source="path", spec=str(path), identity="sha256:unused")
    assignments = [
        Assignment(
            job=Job(
                run_uid="run",
                host_uid="host",
                model=model,
                test=test,
                settings=settings,
                repetitions=repetitions,
                seed=seed,
                interleaved=interleaved,
            ),
            attempt_uid=str(index),
        )
        for index, (test, settings) in enumerate(jobs)
    ]
    request = {
        "spec": {"path": str(path), "n_threads": {"physical": 1, "all": 2}},
        "assignments": [asdict(a) for a in assignments],
    }
    environment = child_environment()
    if path_first is not None:
        environment["PYTHONPATH"] = f"{path_first}:{environment['PYTHONPATH']}"
    answer = subprocess.run(
        [sys.executable, "-m", "worker", "--no-wait"],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    events = [json.loads(line) for line in answer.stdout.splitlines()]
    ends = [event for event in events if event["event"] == "attempt_end"]
    samples = [
        [e["sample"] for e in events if e["event"] == "sample" and e["attempt_uid"] == a.attempt_uid]
        for a in assignments
    ]
    return ends, samples


def fastest(samples: list[dict[str, Any]]) -> int:
    return min(int(sample["elapsed_ns"]) for sample in samples)


def in_effect(end: dict[str, Any]) -> dict[str, Any]:
    return {name: effective["value"] for name, effective in end["in_effect"].items()}


def test_twice_the_tokens_take_about_twice_the_time(gemma: Path) -> None:
    """The fastest of several repetitions, since a busy machine only ever adds time."""
    prefills = [Test(n_prompt=n, n_gen=0) for n in (128, 256)]
    decodes = [Test(n_prompt=0, n_gen=n) for n in (12, 24)]
    _, (pp1, pp2, tg1, tg2) = measure(gemma, *((test, DEFAULTS) for test in prefills + decodes), repetitions=8)
    assert 1.5 < fastest(pp2) / fastest(pp1) < 2.6
    assert 1.5 < fastest(tg2) / fastest(tg1) < 2.6


def test_the_cache_is_empty_at_each_repetition(gemma: Path) -> None:
    """The context holds exactly one repetition: were the cache not emptied, the second would find no room."""
    (end,), (samples,) = measure(gemma, (Test(n_prompt=250, n_gen=6), DEFAULTS), repetitions=3)
    assert "error" not in end
    assert len(samples) == 3
    assert in_effect(end)["n_ctx"] == 256


def test_no_figure_depends_on_a_previous_job(gemma: Path) -> None:
    """The same job first in its process, and after a deep one and one with other settings."""
    test = Test(n_prompt=0, n_gen=16)
    other = Settings(n_threads=1, type_k="q8_0", type_v="q8_0", flash_attn="on", n_ubatch=64)
    before = (Test(n_prompt=0, n_gen=4, n_depth=512), other)
    _, (alone,) = measure(gemma, (test, DEFAULTS), repetitions=8)
    ends, (_, after) = measure(gemma, before, (test, DEFAULTS), repetitions=8)
    assert 0.6 < fastest(after) / fastest(alone) < 1.6
    assert in_effect(ends[1]) == in_effect(ends[1]) | {"type_k": "f16", "type_v": "f16"}


def test_jobs_that_take_turns_each_have_their_own_settings_in_effect_and_their_own_rate(gemma: Path) -> None:
    test = Test(n_prompt=0, n_gen=16)
    small = Settings(n_threads=1, type_k="q8_0", type_v="q8_0", flash_attn="on", n_ubatch=64)
    deep = Test(n_prompt=8, n_gen=4, n_depth=300)
    _, (alone,) = measure(gemma, (test, DEFAULTS), repetitions=5)
    ends, samples = measure(gemma, (test, DEFAULTS), (test, small), (deep, small), repetitions=5, interleaved=True)
    assert [len(each) for each in samples] == [5, 5, 5]
    assert [in_effect(end)["type_k"] for end in ends] == ["f16", "q8_0", "q8_0"]
    assert [in_effect(end)["n_ubatch"] for end in ends] == [16, 16, 64]
    assert [in_effect(end)["n_ctx"] for end in ends] == [256, 256, 512]
    assert ends[0]["memory"]["cache"]["CPU"] > ends[1]["memory"]["cache"]["CPU"]
    assert [end["latency"] is None for end in ends] == [False] * 3
    assert ends[2]["fill_seconds"] > 0
    assert 0.6 < fastest(samples[0]) / fastest(alone) < 1.6


def test_the_fill_of_a_deep_context_is_not_in_the_rate(gemma: Path) -> None:
    ends, (shallow, deep) = measure(
        gemma,
        (Test(n_prompt=0, n_gen=8), DEFAULTS),
        (Test(n_prompt=0, n_gen=8, n_depth=1024), DEFAULTS),
        repetitions=6,
    )
    assert ends[0]["fill_seconds"] is None
    assert ends[1]["fill_seconds"] * 1e9 > 2 * fastest(deep)
    assert fastest(deep) < 8 * fastest(shallow)


def test_settings_in_effect_are_read_from_the_library_and_may_differ_from_those_asked(gemma: Path) -> None:
    asked = Settings(
        n_threads="all", n_batch=4096, n_ubatch=64, type_k="q8_0", type_v="q8_0", flash_attn="on", load_mode="none"
    )
    (end,), _ = measure(gemma, (Test(n_prompt=32, n_gen=4), asked))
    found = in_effect(end)
    assert end["resolved"]["n_threads"] == 2
    assert (found["n_threads"], found["n_threads_batch"]) == (2, 2)
    assert found["n_batch"] < 4096, "llama.cpp cuts n_batch to the context, silently"
    assert (found["type_k"], found["type_v"], found["flash_attn"], found["load_mode"]) == ("q8_0", "q8_0", "on", "none")
    assert found["n_gpu_layers"] == 0
    assert all(effective["source"] for effective in end["in_effect"].values())


@pytest.mark.parametrize("flash_attn", ["on", "off", "auto"])
def test_flash_attention_in_effect_is_on_or_off_and_never_auto(gemma: Path, flash_attn: str) -> None:
    (end,), _ = measure(gemma, (Test(n_prompt=8, n_gen=0), Settings(n_threads=1, flash_attn=flash_attn)))
    assert in_effect(end)["flash_attn"] == ("off" if flash_attn == "off" else "on")


def test_a_mapped_file_is_seen_in_the_process_itself(gemma: Path) -> None:
    (end,), _ = measure(gemma, (Test(n_prompt=8, n_gen=0), Settings(n_threads=1, load_mode="mmap")))
    assert end["in_effect"]["load_mode"] == {"value": "mmap", "source": "maps"}


def test_an_impossible_context_fails_in_words_and_with_its_stage(gemma: Path) -> None:
    asked = Settings(n_threads=1, type_v="q8_0", flash_attn="off")
    (end,), _ = measure(gemma, (Test(n_prompt=8, n_gen=0), asked))
    assert "a quantised V cache needs flash attention" in end["error"]


def test_a_file_that_is_no_model_fails_in_words(tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<html>")
    (end,), _ = measure(path, (Test(n_prompt=8, n_gen=0), DEFAULTS))
    assert "could not load page.gguf" in end["error"]


def test_prefill_and_decode_are_consistent_in_the_combined_test(gemma: Path) -> None:
    _, (prefill, decode, both) = measure(
        gemma,
        (Test(n_prompt=64, n_gen=0), DEFAULTS),
        (Test(n_prompt=0, n_gen=16), DEFAULTS),
        (Test(n_prompt=64, n_gen=16), DEFAULTS),
        repetitions=6,
    )
    assert all(s["prompt_ns"] + s["gen_ns"] == s["elapsed_ns"] for s in both)
    assert 0.5 < min(s["prompt_ns"] for s in both) / fastest(prefill) < 2
    assert 0.5 < min(s["gen_ns"] for s in both) / fastest(decode) < 2


def test_decode_keeps_the_latency_of_each_token(gemma: Path) -> None:
    (end,), (samples,) = measure(gemma, (Test(n_prompt=0, n_gen=10), DEFAULTS), repetitions=3)
    latency = end["latency"]
    mean = statistics.fmean(s["elapsed_ns"] for s in samples) / 10
    assert sum(latency["histogram"]) == 30
    assert latency["p50_ns"] <= latency["p95_ns"] <= latency["p99_ns"] <= latency["max_ns"]
    assert latency["p50_ns"] < 3 * mean


def test_what_llama_cpp_says_of_the_model_comes_back(gemma: Path) -> None:
    (end,), _ = measure(gemma, (Test(n_prompt=8, n_gen=0), DEFAULTS), repetitions=1)
    assert end["model"]["architecture"] == "gemma3"
    assert end["model"]["model_n_params"] == 268_098_176
    assert "Q4_K" in end["model"]["model_type"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"n_threads": 1, "n_threads_batch": 2}, {"n_threads": 1, "n_threads_batch": 2}),
        ({"embeddings": "on"}, {"embeddings": "on"}),
        ({"repack": "off"}, {"repack": "off"}),
        ({"cpu_mask": "0x1", "n_threads": 2}, {"cpu_mask": "0x1"}),
        ({"load_mode": "dio"}, {"load_mode": "dio"}),
        ({"prio": "low"}, {"prio": "low"}),
        ({"poll": 0, "cpu_strict": "on"}, {"cpu_mask": "0x0"}),
        ({"numa": "distribute"}, {"n_gpu_layers": 0}),
        ({"no_op_offload": "on", "no_host": "on", "no_kv_offload": "on", "lazy_mode": "off"}, {"no_kv_offload": None}),
        ({"tensor_split": "1/1", "split_mode": "none", "main_gpu": 0, "n_cpu_moe": 2}, {"n_gpu_layers": 0}),
        ({"devices": "none"}, {"devices": "none"}),
    ],
)
def test_a_setting_beyond_the_default_is_seen_in_effect_where_it_can_be(
    gemma: Path, asked: dict[str, Any], expected: dict[str, Any]
) -> None:
    (end,), (samples,) = measure(gemma, (Test(n_prompt=16, n_gen=2), Settings(**{"n_threads": 1} | asked)))
    assert len(samples) == 2
    assert expected.items() <= in_effect(end).items()


def test_weights_that_may_not_be_repacked_lie_in_the_buffer_of_the_file(gemma: Path) -> None:
    ends = [
        measure(gemma, (Test(n_prompt=8, n_gen=0), Settings(n_threads=1, repack=repack)))[0][0]
        for repack in ("on", "off")
    ]
    with_repacking, without = (end["memory"]["weights"] for end in ends)
    assert not any("REPACK" in name for name in without)
    assert in_effect(ends[0])["repack"] == ("on" if any("REPACK" in name for name in with_repacking) else "off")


def test_an_override_of_tensors_is_proven_by_the_library(gemma: Path) -> None:
    asked = Settings(n_threads=1, tensor_buft_overrides="blk.*ffn_up=CPU")
    (end,), _ = measure(gemma, (Test(n_prompt=8, n_gen=0), asked))
    assert in_effect(end)["tensors_overridden"] == 18
    assert in_effect(end)["tensor_buft_overrides"] == "blk.*ffn_up=CPU"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"devices": "CUDA7"}, "there is no device CUDA7; this build of llama.cpp has CPU"),
        ({"tensor_buft_overrides": "a=CUDA7"}, "there is no buffer type CUDA7; this build of llama.cpp has CPU"),
        ({"cpu_mask": "0x80000000000000000000000000000000"}, "asks for CPU 127, which this process may not use"),
    ],
)
def test_what_this_machine_does_not_have_is_refused_by_name(gemma: Path, asked: dict[str, Any], says: str) -> None:
    (end,), _ = measure(gemma, (Test(n_prompt=8, n_gen=0), Settings(**{"n_threads": 1} | asked)))
    assert says in end["error"]


def test_memory_is_the_process_peak_and_the_buffers_of_llama_cpp(gemma: Path) -> None:
    (small, large), _ = measure(
        gemma, (Test(n_prompt=8, n_gen=0), DEFAULTS), (Test(n_prompt=8, n_gen=0, n_depth=2048), DEFAULTS)
    )
    assert small["memory"]["peak_rss_bytes"] > 100_000_000
    assert sum(small["memory"]["weights"].values()) > 150_000_000
    assert sum(large["memory"]["cache"].values()) > 2 * sum(small["memory"]["cache"].values()) > 0
    assert sum(large["memory"]["compute"].values()) > 0


def test_sequences_side_by_side_give_more_tokens_in_all_and_fewer_each(gemma: Path) -> None:
    tests = [Test(n_prompt=0, n_gen=8, n_depth=64, n_parallel=n) for n in (1, 8)]
    ends, (alone, together) = measure(gemma, *((test, DEFAULTS) for test in tests), repetitions=6)
    assert in_effect(ends[1])["n_seq_max"] == 8
    assert together[0]["n_tokens"] == 8 * alone[0]["n_tokens"]
    assert fastest(alone) < fastest(together) < 8 * fastest(alone)


def test_a_pass_over_more_tokens_takes_longer_but_less_for_each(gemma: Path) -> None:
    tests = [Test(n_prompt=0, n_gen=0, n_depth=64, n_verify=n) for n in (1, 8)]
    _, (one, eight) = measure(gemma, *((test, DEFAULTS) for test in tests), repetitions=6)
    assert eight[0]["n_tokens"] == 8 * one[0]["n_tokens"]
    assert fastest(one) < fastest(eight) < 8 * fastest(one)


def test_a_shared_depth_is_filled_once_and_gone_on_from(gemma: Path) -> None:
    tests = [
        Test(n_prompt=16, n_gen=0, n_depth=256),
        Test(n_prompt=0, n_gen=4, n_depth=256),
        Test(n_prompt=0, n_gen=4, n_depth=512),
    ]
    ends, _ = measure(gemma, *((test, DEFAULTS) for test in tests))
    first, again, deeper = (end["fill_seconds"] for end in ends)
    assert again < first / 4
    assert deeper > again


def test_the_tokenizer_and_the_first_token_have_figures_of_their_own(gemma: Path) -> None:
    (end,), (samples,) = measure(gemma, (Test(n_prompt=64, n_gen=4), DEFAULTS), repetitions=3)
    assert end["tokenize_ts"] > 10_000
    middle = statistics.median(sample["prompt_ns"] for sample in samples)
    assert middle < end["first_token_ns"] < 2 * statistics.median(sample["elapsed_ns"] for sample in samples)


@pytest.mark.parametrize("lost", ["n_ubatch", "n_rs_seq", "n_threads", "split_mode", "load_mode"])
def test_a_binding_that_is_not_its_librarys_own_is_refused_and_never_measured(
    gemma: Path, tmp_path: Path, lost: str
) -> None:
    """The real binding with one field of a structure gone: every later value lands in the field before its own."""
    import llama_cpp

    own = Path(llama_cpp.__file__).parent
    shutil.copytree(own, tmp_path / "llama_cpp", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    (tmp_path / "llama_cpp" / "lib").symlink_to(own / "lib")
    binding = tmp_path / "llama_cpp" / "llama_cpp.py"
    text, n_removed = re.subn(rf'^ +\("{lost}", ctypes\.\w+\),\n', "", binding.read_text(), flags=re.MULTILINE)
    assert n_removed == 1
    binding.write_text(text)
    (end,), (samples,) = measure(gemma, (Test(n_prompt=8, n_gen=0), DEFAULTS), path_first=tmp_path)
    assert "do not belong together" in end["error"]
    assert samples == []
