"""llama-bench's command line as a sweep, a stored row as that line, and `tokfleet bench` with a stand-in."""

import itertools
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.interchange.llama_bench import DEFAULT_MODEL, translate
from orchestrator.interchange.llama_bench_options import BY_NAME, IGNORED, MOST_VALUES, OPTIONS, REFUSED
from orchestrator.interchange.llama_bench_row import command_line
from orchestrator.store import Store
from schema.errors import SweepError, UsageError
from schema.job import Job, ModelRef, Test
from schema.settings import Settings
from schema.sweep import Sweep, parse_sweep
from schema.sweep_reader import MAX_VALUES
from tests.command import Command
from tests.factories import make_fingerprint, make_job, make_record, make_run

GOLDEN = json.loads((Path(__file__).parent / "golden" / "llama_bench_lines.json").read_text())
BASE = Path("/models")
SWITCHES = ("cpu_strict", "no_kv_offload", "no_op_offload", "no_host", "embeddings", "repack")
NOT_PRINTED = ("prio", "numa", "env", "n_threads_batch", "host_settings")
"""Settings that llama-bench does not print with a test."""

NAMES = (
    "-h --help --version --numa -r --repetitions --prio --delay -o --output -oe --output-err --list-devices -v "
    "--verbose --progress --no-warmup -fitt --fit-target -fitc --fit-ctx -rpc --rpc -m --model -hf -hfr --hf-repo "
    "-hff --hf-file -hft --hf-token --offline -p --n-prompt -n --n-gen -pg -d --n-depth -b --batch-size -ub "
    "--ubatch-size -ctk --cache-type-k -ctv --cache-type-v -t --threads -C --cpu-mask --cpu-strict --poll -ngl "
    "--n-gpu-layers -ncmoe --n-cpu-moe -sm --split-mode -mg --main-gpu -nkvo --no-kv-offload -fa --flash-attn "
    "-dev --device -lm --load-mode -lzm --lazy-mode -embd --embeddings -ts --tensor-split -ot --override-tensor "
    "-nopo --no-op-offload --no-host --repack -mmp --mmap -dio --direct-io"
)
"""What `llama-bench --help` lists, and two names of older versions."""


def sweep_of(line: str) -> Sweep:
    return translate(shlex.split(line), BASE).sweep


def params(line: str) -> dict[str, tuple[int | str, ...]]:
    return sweep_of(f"-m a.gguf {line}").params


def notes(line: str) -> str:
    return "\n".join(translate(shlex.split(f"-m a.gguf {line}"), BASE).notes)


def as_llama_bench_prints(name: str, value: int | str) -> Any:
    """Return a setting of ours as llama-bench prints it."""
    if name in SWITCHES:
        return value == "on"
    words: dict[str, dict[int | str, int]] = {
        "flash_attn": {"on": 1, "off": 0, "auto": -1},
        "n_gpu_layers": {"all": -1},
        "n_threads": {"physical": GOLDEN["defaults"]["n_threads"]},
    }
    return words.get(name, {}).get(value, value)


def comparable(test: dict[str, Any]) -> frozenset[tuple[str, Any]]:
    """Return a test that llama-bench printed, with what can be written in several ways in one of them."""
    shares = [float(share) for share in str(test["tensor_split"]).split("/")]
    while len(shares) > 1 and not shares[-1]:
        shares.pop()
    plain = {
        "cpu_mask": int(test["cpu_mask"], 16),
        "tensor_split": tuple(shares),
        "no_op_offload": bool(test["no_op_offload"]),
    }
    return frozenset((test | plain).items())


def grid(sweep: Sweep) -> set[frozenset[tuple[str, Any]]]:
    """Return what the sweep measures, each test in llama-bench's names and values."""
    names = [name for name in Settings.__dataclass_fields__ if name not in NOT_PRINTED]
    found = set()
    for values in itertools.product(*(sweep.values(name) for name in names)):
        settings = {name: as_llama_bench_prints(name, value) for name, value in zip(names, values, strict=True)}
        for model, test in itertools.product(sweep.models, sweep.tests):
            counts = {name: getattr(test, name) for name in ("n_prompt", "n_gen", "n_depth")}
            path = str(Path(model.spec).relative_to(BASE))
            found.add(comparable(settings | counts | {"model_filename": path}))
    return found


@pytest.mark.parametrize("line", [line for line, tests in GOLDEN["lines"].items() if tests])
def test_a_line_makes_the_grid_that_llama_bench_ran(line: str) -> None:
    expected = {comparable(GOLDEN["defaults"] | test) for test in GOLDEN["lines"][line]}
    sweep = sweep_of(line)
    assert grid(sweep) == expected
    assert sweep.n_combinations == len(expected)


@pytest.mark.parametrize("line", [line for line, tests in GOLDEN["lines"].items() if not tests])
def test_a_line_that_llama_bench_refuses_or_that_measures_nothing_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        sweep_of(line)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 160


def test_there_are_enough_lines_from_llama_bench_itself() -> None:
    assert sum(bool(tests) for tests in GOLDEN["lines"].values()) >= 50


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-dev CUDA0/CUDA1", {"devices": ("CUDA0/CUDA1",)}),
        ("-dev CUDA0,CUDA1,CUDA0/CUDA1,none", {"devices": ("CUDA0", "CUDA1", "CUDA0/CUDA1", "none")}),
        ("-ot 'blk\\.[0-9]+\\.ffn_.*=CUDA0'", {"tensor_buft_overrides": ("blk\\.[0-9]+\\.ffn_.*=CUDA0",)}),
        ("-ot 'a: {b}#=CUDA_Host'", None),
        ("--prio 2", {"prio": ("high",)}),
        ("--prio 1 --prio -1", {"prio": ("low",)}),
        ("--numa isolate --numa numactl", {"numa": ("numactl",)}),
        ("-mmp 0", {"load_mode": ("none",)}),
        ("-mmp 0,1", {"load_mode": ("none", "mmap")}),
        ("--mmap 1", {"load_mode": ("mmap",)}),
        ("-dio 1", {"load_mode": ("dio",)}),
        ("-dio 0", {"load_mode": ("mmap",)}),
        ("-mmp 0,1 -dio 0,1", {"load_mode": ("none", "mmap", "dio")}),
        ("-sm tensor", {"split_mode": ("tensor",)}),
        ("-C 0xFFFFFFFFFFFFFFFFFF", {"cpu_mask": ("0xffffffffffffffffff",)}),
    ],
)
def test_options_that_this_llama_bench_does_not_print_or_know_become_settings(
    line: str, expected: dict[str, tuple[int | str, ...]] | None
) -> None:
    if expected is None:
        with pytest.raises(UsageError, match="cannot be meant"):
            params(line)
    else:
        assert params(line) == expected


def test_repetitions_and_the_last_of_them_count() -> None:
    assert sweep_of("-m a.gguf").repetitions == 5
    assert sweep_of("-m a.gguf -r 3 --repetitions 7").repetitions == 7
    for count in ("0", "-1", "1,2", "1001", "x"):
        with pytest.raises(UsageError, match="-r"):
            sweep_of(f"-m a.gguf -r {count}")


def test_the_printed_sweep_file_is_the_same_sweep() -> None:
    lines = [*GOLDEN["lines"], "-m 'a b: #.gguf,\"c\".gguf' -ot 'x\\d{2}|y=CPU' -ts .5/1.25 -C ff -dev CUDA0/CUDA1"]
    for line in lines:
        if GOLDEN["lines"].get(line, "new"):
            found = translate(shlex.split(line), BASE)
            assert parse_sweep(found.text, "sweep.yaml", BASE) == found.sweep
            assert translate(shlex.split(line), BASE) == found


def test_what_the_file_says_reads_as_people_write_it() -> None:
    found = translate(
        shlex.split("-m models/tiny.gguf -p 16,32 -pg 4,2 -n 0 -d 0,8 -ngl 99 -fa 1 -ot exps=CPU -r 3"), BASE
    )
    assert found.text == (
        'name: "tiny"\n'
        "models:\n"
        '  - path: "models/tiny.gguf"\n'
        "tests: {n_prompt: [16, 32], pg: [[4, 2]], n_depth: [0, 8]}\n"
        'params: {flash_attn: [on], n_gpu_layers: [99], tensor_buft_overrides: ["exps=CPU"]}\n'
        "repeat: 3\n"
    )


def test_a_value_that_comes_twice_is_kept_once_with_a_note() -> None:
    assert params("-b 64,32,64 -b 32") == {"n_batch": (64, 32)}
    assert "`-b` has 64, 32 more than once" in notes("-b 64,32,64 -b 32")
    assert "`-m` has ./a.gguf more than once" in notes("-m ./a.gguf")
    assert "`-p` has 512 more than once" in notes("-pg 512,0")
    assert "`-pg` has 8,4 more than once" in notes("-pg 8,4 -pg 8,4")
    assert "`-ngl` has all more than once" in notes("-ngl -1,-2")
    assert not notes("-p 1,2")


def test_a_comma_in_tensor_split_is_explained() -> None:
    assert "`5,5` with a comma means more runs; a slash, `5/5`, means shares of one run." in notes("-ts 5,5")
    assert not notes("-ts 5/5,1/3")


def test_without_a_model_it_is_llama_benchs_default_with_a_note() -> None:
    found = translate([], BASE)
    assert found.sweep.models[0].spec == str(BASE / DEFAULT_MODEL)
    assert DEFAULT_MODEL in found.notes[0]


@pytest.mark.parametrize("name", IGNORED)
def test_an_option_that_changes_nothing_is_accepted_and_said_so(name: str) -> None:
    assert params(name) == {}
    assert f"`{name}` changes nothing here: " in notes(name)


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_is_not_here_is_refused_by_name_with_the_reason(name: str) -> None:
    value = "1" if REFUSED[name][1] else ""
    with pytest.raises(UsageError) as caught:
        sweep_of(f"-m a.gguf {name} {value}")
    assert str(caught.value) == f"`{name}` is refused: {REFUSED[name][0]}."


def test_all_that_is_refused_is_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        sweep_of("-m a.gguf -o json --delay 5 --threds 4 --rpc a:1,b:2 -p 3x -t")
    said = str(caught.value).splitlines()
    assert [text.split("`")[1] for text in said] == ["-o", "--delay", "--threds", "--rpc", "-p 3x", "-t"]
    assert "the nearest is `--threads`" in said[2]
    assert "LLAMA_ARG_RPC" in said[3]


def test_every_option_of_llama_bench_is_known() -> None:
    assert {*BY_NAME, *REFUSED, *IGNORED, "-h", "--help"} == {*NAMES.split()}


def test_a_list_is_as_long_as_a_sweep_file_allows() -> None:
    assert MOST_VALUES == MAX_VALUES
    assert len(sweep_of(f"-m a.gguf -p 1-{MAX_VALUES} -n 0").tests) == MAX_VALUES
    for line in (f"-p 0-{MAX_VALUES}", "-p 1-99999999", "-n 5-3", "-p 2147483648", "-t 0", "--poll 101", "-d 99999999"):
        with pytest.raises(UsageError, match="cannot be meant"):
            sweep_of(f"-m a.gguf {line}")
    with pytest.raises(SweepError, match="tests"):
        sweep_of("-m a.gguf -p 1-200 -n 0 -d 1-200")


def repeated(job: Job, **row: Any) -> Job:
    """Return the one job that the line for `job` asks for."""
    words = shlex.split(command_line(job, row))
    variables = list(itertools.takewhile(lambda word: word != "llama-bench", words))
    sweep = translate(words[len(variables) + 1 :], BASE).sweep
    assert sweep.n_combinations == 1
    settings: dict[str, Any] = {name: sweep.values(name)[0] for name in Settings.__dataclass_fields__}
    settings["env"] = " ".join(variables) or "none"
    model = ModelRef(source="path", spec=sweep.models[0].spec, identity=job.model.identity)
    return make_job(model=model, test=sweep.tests[0], settings=Settings(**settings), repetitions=sweep.repetitions)


def unusual_settings() -> Iterator[Settings]:
    """Yield settings of which each field has a value that is not the default in some."""
    yield Settings(
        n_batch=64,
        n_ubatch=32,
        n_threads=4,
        type_k="q8_0",
        type_v="q4_0",
        flash_attn="on",
        n_gpu_layers=99,
        n_cpu_moe=3,
        split_mode="row",
        main_gpu=1,
        tensor_split="3/1",
        tensor_buft_overrides="blk\\.(1|2)\\..*=CPU;x=CUDA0",
        devices="CUDA0/CUDA1",
        no_kv_offload="on",
        no_op_offload="on",
        no_host="on",
        embeddings="on",
        repack="off",
        load_mode="mmap+mlock",
        lazy_mode="off",
        cpu_mask="0xf",
        cpu_strict="on",
        poll=0,
        prio="high",
        numa="distribute",
        env="CUDA_VISIBLE_DEVICES=0 GGML_X=a",
    )
    yield Settings(flash_attn="off", n_gpu_layers=0, prio="low", n_threads=1)
    yield Settings(n_threads=8)


@pytest.mark.parametrize("settings", list(unusual_settings()))
@pytest.mark.parametrize(
    "test",
    [
        Test(n_prompt=512, n_gen=0),
        Test(n_prompt=0, n_gen=32, n_depth=64),
        Test(n_prompt=16, n_gen=8),
        Test(n_prompt=512, n_gen=128, n_depth=1),
    ],
)
def test_the_line_of_a_row_asks_for_the_same_job(settings: Settings, test: Test) -> None:
    model = ModelRef(source="path", spec="/models/a b'c.gguf", identity="sha256:0")
    for repetitions in (5, 2):
        job = make_job(model=model, test=test, settings=settings, repetitions=repetitions)
        assert repeated(job) == job


def test_every_setting_stands_in_the_test_above() -> None:
    kept_apart = {"n_threads_batch", "host_settings"}
    assert {*next(iter(unusual_settings())).beyond_defaults()} == {*Settings.__dataclass_fields__} - kept_apart
    assert {option.key.partition(".")[2] for option in OPTIONS} >= {*Settings.__dataclass_fields__} - {
        *kept_apart,
        "env",
    }


def test_threads_by_a_symbol_become_the_number_that_they_were() -> None:
    job = make_job(settings=Settings(n_threads="physical"))
    assert "-t 12" in command_line(job, {"n_threads": 12})
    assert " -t " not in command_line(job, {"n_threads": None})
    with pytest.raises(UsageError, match="How many threads `all` were"):
        command_line(make_job(settings=Settings(n_threads="all")), {})
    same = make_job(settings=Settings(n_threads=4, n_threads_batch=4))
    assert "-t 4" in command_line(same, {})
    both = make_job(settings=Settings(n_threads="physical", n_threads_batch="all"))
    assert "-t 4" in command_line(both, {"n_threads": 4, "n_threads_batch": 4})


def test_a_synthetic_model_is_the_file_that_was_measured_or_how_to_make_it() -> None:
    line = command_line(
        make_job(), {"model_filename": "/cache/tiny.gguf", "env": '{"LLAMA_ARG_RPC": "a:1,b:2", "GGML_A": "x y"}'}
    )
    assert line == "GGML_A='x y' llama-bench -m /cache/tiny.gguf -p 512 -n 0 --rpc a:1,b:2"
    assert command_line(make_job(), {}) == 'llama-bench -m "$(tokfleet model synth tiny:Q4_K_M)" -p 512 -n 0'


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"test": Test(n_prompt=8, n_gen=0, n_parallel=4)}, "4 sequences side by side"),
        ({"test": Test(n_prompt=0, n_gen=0, n_verify=4)}, "verifies 4 tokens"),
        ({"settings": Settings(type_k="f32")}, "f32"),
        ({"settings": Settings(n_threads=2, n_threads_batch=4)}, "other threads for a prompt"),
    ],
)
def test_what_llama_bench_cannot_repeat_is_said(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command_line(make_job(**fields), {})


def test_results_prints_the_line_of_a_job_or_an_attempt(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "store.sqlite"
    jobs = [make_job(test=Test(n_prompt=512, n_gen=0)), make_job(test=Test(n_prompt=0, n_gen=64))]
    with Store.open(f"sqlite:///{path}", create=True) as store:
        store.save_fingerprint(make_fingerprint())
        store.save_run(make_run(), jobs)
        store.save_records([make_record(job, attempt_uid=uid) for job, uid in zip(jobs, ("abc1", "abd2"), strict=True)])
    assert main(["results", "--command", "abd", "--db", str(path)]) == 0
    assert capsys.readouterr().out == "llama-bench -m /srv/models/tiny-Q4_K_M.gguf -p 0 -n 64 -t 8\n"
    assert main(["results", "--command", jobs[0].job_uid[:20], "--db", str(path)]) == 0
    assert "-p 512 -n 0" in capsys.readouterr().out
    assert main(["results", "--command", "ab", "--db", str(path)]) == 1
    assert "Several jobs" in capsys.readouterr().err
    for nothing in ("none", "%", ""):
        assert main(["results", "--command", nothing, "--db", str(path)]) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_was_set_on_the_host_is_said_beside_the_line(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "store.sqlite"
    job = make_job(settings=Settings(host_settings="gpu_power_w=250"))
    with Store.open(f"sqlite:///{path}", create=True) as store:
        store.save_fingerprint(make_fingerprint())
        store.save_run(make_run(), [job])
        store.save_records([make_record(job)])
    assert main(["results", "--command", job.job_uid, "--db", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("llama-bench -m ")
    assert "gpu_power_w set to 250" in err


def test_bench_prints_the_sweep_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    line = shlex.split("-m tiny.gguf --print_sweep -ngl 99 -hf_ 3 -p 8,8 -n 0")
    assert main(["bench", *line]) == 2
    assert "llama-bench has no option `-hf_`" in capsys.readouterr().err
    assert main(["bench", *(word for word in line if word not in ("-hf_", "3"))]) == 0
    out, err = capsys.readouterr()
    assert parse_sweep(out, "sweep.yaml", Path.cwd()) == sweep_at("-m tiny.gguf -ngl 99 -p 8 -n 0", Path.cwd())
    assert "`-p` has 8 more than once" in err
    assert not (tmp_path / "home").exists()


def sweep_at(line: str, base: Path) -> Sweep:
    return translate(shlex.split(line), base).sweep


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-m tiny.gguf -o json", "`-o` is refused: rows go to the database"),
        ("-m tiny.gguf --db", "requires an argument"),
        ("-m tiny.gguf -- -p 5", "no option `--`"),
        ("-m", "`-m` cannot be meant: it needs a value"),
        ("-p 12x", "`-p 12x` cannot be meant"),
    ],
)
def test_bench_ends_with_2_where_the_line_is_refused(line: str, said: str, capsys: Any) -> None:
    assert main(["bench", *line.split()]) == 2
    assert said in capsys.readouterr().err


def test_bench_measures_as_run_does_and_its_rows_lead_back_to_the_line(tmp_path: Path, standin_python: str) -> None:
    tokfleet = Command(tmp_path / "home")
    model = tokfleet.run("model", "synth", "test-tiny", "--out", str(tmp_path / "tiny.gguf")).stdout.strip()
    line = ["-m", model, "-p", "8", "-n", "4", "-t", "1", "-fa", "0,1", "-r", "2"]
    done = tokfleet.run("bench", *line, "--yes", "--python", standin_python)
    assert done.returncode == 0, done.stderr
    assert "Measured 4 tests." in done.stdout
    rows = tokfleet.rows("SELECT job_uid, n_samples FROM results")
    assert [row["n_samples"] for row in rows] == [2, 2, 2, 2]
    again = {tokfleet.run("results", "--command", row["job_uid"]).stdout.partition("llama-bench ")[2] for row in rows}
    assert again == {
        f"-m {model} {test} -t 1 -fa {flash} -r 2\n" for test in ("-p 8 -n 0", "-p 0 -n 4") for flash in (1, 0)
    }
