"""Puts the verdict on a record: how quiet its machine was, what is doubtful of its figures, what it took in energy."""

from dataclasses import replace

from schema.host import Fingerprint
from schema.job import Test
from schema.record import Record
from worker import doubts, gpu_conditions
from worker.conditions.energy import energy
from worker.conditions.verdict import Given, judge
from worker.conditions.watch import Watch


def judged(record: Record, watch: Watch | None, fingerprint: Fingerprint, test: Test) -> Record:
    """Return the measured `record` with conditions, quality and reasons; the notes that it came with come last.

    Without a watch, as where another program measured, the figures alone give reasons, and the quality is unknown.
    Raises KeyError where the record does not say how many threads it had.
    """
    unheeded = doubts.unheeded(record.resolved, record.in_effect, bool(fingerprint.hardware.gpus))
    notes = (*unheeded, *record.quality_reasons)
    if watch is None:
        return replace(record, quality_reasons=(*doubts.unsteady(record.samples), *notes))
    given = given_to(record, fingerprint, test)
    found = watch.conditions(1 if given.on_gpu else given.n_threads)
    found = replace(found, energy=energy(watch.joules, watch.idle, record.samples, test, found, given))
    doubtful = doubts.measures(record.samples, record.latency, found, fingerprint.hardware.n_cores_logical)
    quality, reasons = judge(found, given, doubtful)
    if given.on_gpu:
        notes = (*gpu_conditions.judge(found.gpu)["notes"], *notes)
    return replace(record, conditions=found, quality=quality, quality_reasons=(*reasons, *notes))


def given_to(record: Record, fingerprint: Fingerprint, test: Test) -> Given:
    """Return what `record` was measured with: its threads for the test's kind, and whether a GPU computed."""
    n_threads = record.resolved["n_threads"]
    if test.kind == "pp":
        n_threads = record.resolved.get("n_threads_batch") or n_threads
    layers = record.in_effect.get("n_gpu_layers")
    asked = record.resolved.get("n_gpu_layers")
    has_gpu = bool(fingerprint.hardware.gpus)
    on_gpu = layers.value not in (None, 0) if layers is not None else has_gpu and asked not in (None, 0, "0")
    allowed = fingerprint.allocation
    return Given(
        n_threads=int(n_threads or 1), n_cpus=allowed.n_cpus, quota_cores=allowed.cpu_quota_cores, on_gpu=on_gpu
    )
