"""Results in a store beside the limits of their machine, whatever comes first: the probe, the record or the facts."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.spool import Entry
from orchestrator.store import Store
from schema.canonical import to_json
from schema.errors import StoreError
from schema.host import Cache, Gpu
from schema.job import Job, Test
from schema.probe import Probe
from schema.record import Effective, Record
from tests.factories import (
    make_build,
    make_curve,
    make_fingerprint,
    make_gemm,
    make_hardware,
    make_job,
    make_model_facts,
    make_probe,
    make_record,
    make_run,
    make_samples,
)
from tests.stores import answers_of

DECODE, PREFILL = make_job(test=Test(n_prompt=0, n_gen=128)), make_job()
MODEL = make_model_facts(
    weight_bytes_per_token=760_000_000,
    key_width=8192,
    value_width=8192,
    kv_bytes_per_context_token=32768,
    active_params=1_240_000_000,
    prompt_params=970_000_000,
    n_layer=16,
)
TOKEN_BYTES = 760_000_000 + 64.5 * 2 * 16384
PROBE = make_probe()
LATE = {"taken_at": "2026-01-02T04:00:00Z"}
SHARES = "mbu, ceiling_ts, read_bytes_per_s, bound"


def decoded(job: Job = DECODE, **fields: Any) -> Record:
    """Return a record of 50 t/s with 8 threads."""
    return make_record(job, **({"model": MODEL, "samples": make_samples(job.test, 2_560_000_000)} | fields))


def a_store(url: str, *jobs: Job) -> Store:
    store = Store.open(url)
    store.save_run(make_run(), list(jobs or (DECODE, PREFILL)))
    return store


def only(store: Store, columns: str = SHARES, where: str = "1 = 1") -> tuple[Any, ...]:
    (row,) = answers_of(store.database, f"SELECT {columns} FROM results WHERE {where}")
    return row


@pytest.mark.parametrize("order", ["fpr", "frp", "pfr", "prf", "rfp", "rpf"])
def test_the_shares_are_the_same_in_whatever_order_facts_probe_and_record_come(store_url: str, order: str) -> None:
    with a_store(store_url) as store:
        save: dict[str, Callable[[], Any]] = {
            "f": lambda: store.save_fingerprint(make_fingerprint()),
            "p": lambda: store.save_probe(PROBE),
            "r": lambda: store.save_records([decoded()]),
        }
        for each in order:
            save[each]()
        found = only(store, f"{SHARES}, bytes_per_token, kv_bytes_per_token, probe_uid, mfu")
    assert found[:3] == pytest.approx((50 * TOKEN_BYTES / 60e9, 60e9 / TOKEN_BYTES, 60e9))
    assert found[4:6] == pytest.approx((TOKEN_BYTES, 64.5 * 2 * 16384))
    assert (found[3], found[6], found[7]) == ("cores", PROBE.probe_uid, None)


def test_the_newest_probe_before_the_attempt_counts_and_none_after_it(store_url: str) -> None:
    older = make_curve({8: 30e9}, taken_at="2026-01-01T00:00:00Z")
    with a_store(store_url) as store:
        store.save_records([decoded()])
        assert only(store) == (None, None, None, None)
        for probe in (make_curve({8: 99e9}, **LATE), older, PROBE, older):
            store.save_probe(probe)
        assert only(store, "read_bytes_per_s, probe_uid") == (60e9, PROBE.probe_uid)


@pytest.mark.parametrize(
    "other",
    [{"host_uid": "host-2"}, {"hardware_id": "f" * 32}, {"allocation_id": "f" * 32}, {"hardware_id": None}],
)
def test_a_probe_of_another_machine_or_share_of_it_does_not_count(store_url: str, other: dict[str, Any]) -> None:
    with a_store(store_url) as store:
        store.save_probe(make_probe(**other))
        store.save_records([decoded()])
        assert only(store) == (None, None, None, None)


def test_a_prefill_is_set_beside_a_matrix_product(store_url: str) -> None:
    gemm = make_gemm(500e9, 8, single=80e9)
    with a_store(store_url) as store:
        store.save_probe(PROBE)
        store.save_probe(gemm)
        store.save_fingerprint(make_fingerprint())
        store.save_records([make_record(PREFILL, model=MODEL, samples=make_samples(PREFILL.test, 4_096_000_000))])
        found = only(store, "mfu, flop_per_s, bound, probe_uid, mbu, ceiling_ts")
    assert found == (pytest.approx(2 * 970e6 * 125 / 500e9), 500e9, "cores", gemm.probe_uid, None, None)


def test_the_probes_of_a_series_count_for_it_also_the_one_after_it(store_url: str) -> None:
    before = make_curve({8: 50e9}, series_uid="s-1", moment="before")
    after = make_curve({8: 52e9}, series_uid="s-1", moment="after", **LATE)
    with a_store(store_url) as store:
        store.save_probe(before)
        store.save_records([decoded(series_uid="s-1")])
        assert only(store, "read_bytes_per_s, quality") == (50e9, "clean")
        store.save_probe(after)
        assert only(store, "read_bytes_per_s, quality, series_uid") == (52e9, "clean", "s-1")


@pytest.mark.parametrize("order", ["bra", "arb", "rab"])
def test_a_series_around_which_the_memory_changed_is_noisy_and_says_so_once(store_url: str, order: str) -> None:
    probes = {
        "b": make_curve({8: 60e9}, series_uid="s-1", moment="before"),
        "a": make_curve({8: 40e9}, series_uid="s-1", moment="after", **LATE),
    }
    with a_store(store_url) as store:
        for each in (*order, *order):
            if each == "r":
                store.save_records([decoded(series_uid="s-1")])
            else:
                store.save_probe(probes[each])
        quality, reasons = only(store, "quality, quality_reasons")
        assert quality == "noisy"
        assert json.loads(reasons) == [
            "the memory bandwidth of this machine changed from 60.0 to 40.0 GB/s around this series"
        ]


def test_a_series_that_was_found_worse_stays_so(store_url: str) -> None:
    with a_store(store_url) as store:
        store.save_records([decoded(series_uid="s-1", quality="contended", quality_reasons=("others",))])
        store.save_probe(make_curve({8: 60e9}, series_uid="s-1", moment="before"))
        store.save_probe(make_curve({8: 40e9}, series_uid="s-1", moment="after", **LATE))
        quality, reasons = only(store, "quality, quality_reasons")
        assert (quality, json.loads(reasons)[0], len(json.loads(reasons))) == ("contended", "others", 2)


def test_the_same_probe_twice_is_one_row_and_one_without_a_uid_is_refused(store_url: str) -> None:
    with a_store(store_url) as store:
        assert store.save_probe(PROBE) is True
        payload = json.loads(to_json(PROBE))
        store.save_entries([Entry(seq=1, kind="probe", uid=PROBE.probe_uid, payload=payload)])
        assert store.save_probe(PROBE) is False
        with pytest.raises(StoreError, match="probe_uid is empty"):
            store.save_probe(make_probe(probe_uid=""))
        (row,) = answers_of(store.database, "SELECT kind, value, n_threads, host_uid, taken_at, points FROM probes")
    assert tuple(row)[:5] == ("memory_read", 60e9, 8, "host-1", "2026-01-02T03:01:00.000000Z")
    assert [point["n_threads"] for point in json.loads(row[5])] == [1, 8]


@pytest.mark.parametrize("probe", [PROBE, make_gemm(1e12, 8, single=2e11), make_probe(points=(), value=None)])
def test_a_probe_comes_back_as_it_was(store_url: str, probe: Probe) -> None:
    with a_store(store_url) as store:
        store.save_probe(probe)
        store.save_records([decoded()])
        limits = store.limits(decoded().attempt_uid)
    assert limits is not None
    if probe.value is None:
        assert limits.machine.reading is None
    else:
        assert probe in (limits.machine.reading, limits.machine.gemm)


def test_weights_that_fit_into_the_caches_are_known_by_the_hardware(store_url: str) -> None:
    big = make_hardware(caches=(Cache(level=3, kind="unified", size_bytes=96 << 20, instances=8),))
    fingerprint = make_fingerprint(hardware=big)
    with a_store(store_url) as store:
        store.save_records([decoded(hardware_id=big.hardware_id)])
        assert only(store, "bound, cpu_cache_bytes") == (None, None)
        store.save_fingerprint(fingerprint)
        assert only(store, "bound, cpu_cache_bytes") == ("cache", 8 * 96 << 20)


@pytest.mark.parametrize(
    ("effects", "device_help", "place"),
    [
        ({"n_gpu_layers": 0}, True, "cpu"),
        ({"n_gpu_layers": 17, "devices": "CUDA0"}, True, "gpu"),
        ({"n_gpu_layers": 16, "devices": "CUDA0"}, True, None),
        ({"n_gpu_layers": 17, "devices": "CUDA0", "tensors_overridden": 3}, True, None),
        ({"n_gpu_layers": 17, "devices": "CUDA0", "no_kv_offload": "on"}, True, None),
        ({"n_gpu_layers": 17, "devices": "RPC0"}, True, None),
        ({"n_gpu_layers": 17, "devices": "CUDA0/CUDA1"}, True, "gpu"),
        ({"n_gpu_layers": None}, True, None),
        ({"n_gpu_layers": None}, False, "cpu"),
    ],
)
def test_where_the_weights_lay_decides_whose_bandwidth_counts(
    store_url: str, effects: dict[str, Any], device_help: bool, place: str | None
) -> None:
    build = make_build(gpu_offload=device_help, backends=("CUDA", "CPU"))
    card = make_probe(kind="gpu_memory", value=360e9, theoretical=True, device="0: NVIDIA GeForce RTX 3060")
    in_effect = {name: Effective(value=value, source="log") for name, value in {"n_threads": 8, **effects}.items()}
    record = decoded(in_effect=in_effect, build_id=build.build_id, resolved={"split_mode": "layer"})
    with a_store(store_url) as store:
        store.save_fingerprint(make_fingerprint(build=build))
        store.save_probe(PROBE)
        store.save_probe(card)
        store.save_records([record])
        limits = store.limits(record.attempt_uid)
        bandwidth = only(store, "read_bytes_per_s")[0]
    assert limits is not None
    assert limits.rates.place == place
    assert bandwidth == {"cpu": 60e9, "gpu": 360e9, None: None}[place]
    assert limits.rates.prompt_on_cpu == (place == "cpu" and not device_help)


def test_cards_with_different_memories_have_no_common_bandwidth(store_url: str) -> None:
    cards = [Gpu(vendor="nvidia", name="A"), Gpu(vendor="nvidia", name="B")]
    hardware = make_hardware(gpus=tuple(cards))
    build = make_build(gpu_offload=True)
    fingerprint = make_fingerprint(hardware=hardware, build=build)
    ids: dict[str, Any] = {"hardware_id": hardware.hardware_id}
    effects = {"n_gpu_layers": Effective(value=17, source="log")}
    with a_store(store_url) as store:
        store.save_fingerprint(fingerprint)
        one = make_probe(kind="gpu_memory", value=300e9, device="0: A", theoretical=True, **ids)
        store.save_probe(one)
        store.save_records([decoded(in_effect=effects, build_id=build.build_id, **ids)])
        assert only(store) == (None, None, None, None)  # of the other card nothing is known
        store.save_probe(replace(one, probe_uid="b", device="1: B", value=900e9))
        assert only(store) == (None, None, None, None)
        store.save_probe(replace(one, probe_uid="c", device="1: B", value=300e9, taken_at="2026-01-02T03:02:00Z"))
        assert only(store, "read_bytes_per_s, bound") == (300e9, None)


def test_what_llama_bench_measured_has_shares_by_what_it_was_told(store_url: str) -> None:
    build = make_build(binding="llama-bench 6000", method="llama-bench")
    told = {"n_threads": 8, "n_threads_batch": 8, "type_k": "q8_0", "type_v": "q8_0"}
    record = decoded(in_effect={}, resolved=told, build_id=build.build_id, conditions=None, quality=None)
    with a_store(store_url) as store:
        store.save_fingerprint(make_fingerprint(build=build))
        store.save_probe(PROBE)
        store.save_records([record])
        found = only(store, "read_bytes_per_s, kv_bytes_per_token, bound")
    assert found == (60e9, pytest.approx(64.5 * 2 * 8192 * 34 / 32), "cores")


def test_a_failed_or_superseded_attempt_and_an_unknown_model_do_no_harm(store_url: str) -> None:
    with a_store(store_url) as store:
        store.save_probe(PROBE)
        store.save_records([decoded(model=None), decoded(attempt_uid="second", number=2)])
        assert only(store, "mbu, ceiling_ts, bytes_per_token, bound") == (None, None, None, None)
        assert store.limits("nobody") is None
        (row,) = answers_of(store.database, "SELECT mbu FROM attempt WHERE attempt_uid = 'second'")
        assert row[0] is not None
