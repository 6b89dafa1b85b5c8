"""What people read of a probe: the curve and the sentences on it."""

from orchestrator.probe_text import render, verdict
from schema.probe import Probe
from tests.test_probe import MIB, a_point, a_probe


def said(probe: Probe) -> str:
    return " ".join(verdict(probe))


def test_a_linear_curve_says_that_the_cores_are_the_limit() -> None:
    probe = a_probe(a_point(1, 38.2), a_point(2, 76.1), value=76.1e9, n_threads=2, core_limited=True, saturated=False)
    assert said(probe).startswith("Two threads give twice one: the cores are the limit, not the memory.")
    assert "4 GB decodes at most 19 tokens/s here with two threads" in said(probe)


def test_a_flat_curve_says_that_the_memory_is_the_limit_and_how_many_threads_are_enough() -> None:
    points = (a_point(1, 20.0), a_point(8, 60.0), a_point(16, 62.0))
    probe = a_probe(*points, value=62e9, n_threads=16, core_limited=False, saturated=True)
    assert said(probe).startswith("Eight threads read nearly all that the memory gives: it is the limit")


def test_a_curve_in_between_says_how_much_it_gained() -> None:
    probe = a_probe(a_point(1, 20.0), a_point(4, 50.0), value=50e9, n_threads=4, core_limited=False, saturated=False)
    assert said(probe).startswith("Four threads give 2.5 times one: the memory begins to be the limit.")


def test_one_thread_says_that_nothing_can_be_told() -> None:
    assert said(a_probe(a_point(1, 20.0), value=20e9)).startswith("There is one thread to read with")


def test_disturbed_and_doubtful_figures_say_so() -> None:
    point = a_point(1, 20.0, share=0.43)
    words = said(a_probe(point, value=22e9, contended=True, cache_suspect=True))
    assert "ran only 43% of the time" in words
    assert "a cache that the system does not show" in words


def test_a_probe_without_a_figure_says_that() -> None:
    assert said(a_probe(value=None, n_threads=None)) == "The memory could not be read."


def test_the_whole_picture_fits_into_its_width() -> None:
    probes = [
        a_probe(a_point(1, 38.2), a_point(2, 76.1), value=76.1e9, n_threads=2, core_limited=True, errors=("a doubt",)),
        a_probe(a_point(2, 60.0), kind="memory_copy", value=60e9, n_threads=2, errors=("a doubt",)),
        a_probe(kind="gemm_f32", value=460e9, n_threads=2, details={"flops_1_thread": 241e9}),
        a_probe(
            kind="gpu_memory", value=320e9, n_threads=None, method="driver", device="0: Tesla T4", theoretical=True
        ),
    ]
    lines = list(render(probes, width=60))
    assert lines[:6] == [
        "Reading memory (dot64; up to 256 MiB)",
        "",
        "threads    GB/s",
        f"      1    38.2  {'#' * 20}",
        f"      2    76.1  {'#' * 40}",
        "",
    ]
    assert lines[6] == "copy     60.0 GB/s with two threads, bytes read and written"
    assert lines[7].startswith("float32  460 GFLOP/s with two threads, 241 with one")
    assert lines[8] == "GPU      320 GB/s in theory (driver): 0: Tesla T4"
    assert lines[-1] == "Note: a doubt."
    narrow = list(render([a_probe(a_point(1, 1.0, size=64 * MIB))], width=20))
    assert narrow[3] == "      1     1.0  ####"


def test_a_disturbed_curve_says_that_the_limit_cannot_be_told() -> None:
    probe = a_probe(a_point(1, 20.0), a_point(2, 30.0, share=0.5), value=33e9, n_threads=2, contended=True)
    assert said(probe).startswith("Whether the cores or the memory are the limit cannot be told from this.")
