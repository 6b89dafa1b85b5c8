"""The tests of a sweep file: what `n_prompt`, `n_gen`, `pg`, `verify`, `n_depth` and `n_parallel` come to."""

from collections.abc import Iterator

from schema.job import Test
from schema.problem import show
from schema.sweep_reader import Reader
from schema.sweep_values import whole_number
from schema.yaml_file import Entry, Mapping, Node, Scalar, Sequence

MAX_TOKENS = 1_048_576
MAX_TESTS = 10_000
MAX_PARALLEL = 256
MAX_VERIFY = 512


def read_tests(reader: Reader, entry: Entry | None) -> tuple[Test, ...]:
    """Return the tests under `tests`, each once, in the order to run; faults are noted in `reader`.

    Without any that names what is timed they are pp512 and tg128.
    """
    faults_before = reader.n_faults
    mapping = reader.mapping(entry) or Mapping(0, ())
    axes = {key: reader.list_of(mapping.get(key), f"tests.{key}", _tokens) for key in ("n_prompt", "n_gen", "n_depth")}
    pairs = _pairs(reader, mapping.get("pg"))
    verify = reader.list_of(
        mapping.get("verify"), "tests.verify", lambda scalar: int(whole_number(scalar, 1, MAX_VERIFY))
    )
    if not any(mapping.get(key) for key in ("n_prompt", "n_gen", "pg", "verify")):
        axes |= {"n_prompt": (512,), "n_gen": (128,)}
    shapes = [(n, 0) for n in axes["n_prompt"] if n] + [(0, n) for n in axes["n_gen"] if n] + list(pairs)
    parallel = reader.list_of(mapping.get("n_parallel"), "tests.n_parallel", _sequences) or (1,)
    depths = sorted(axes["n_depth"] or (0,))
    line, n_tests = (entry.line if entry else 0), (len(shapes) * len(parallel) + len(verify)) * len(depths)
    if not n_tests and reader.n_faults == faults_before:
        reader.fault(line, "tests", "there is nothing to measure; give n_prompt or n_gen a number above 0.")
    if n_tests > MAX_TESTS:
        reader.fault(line, "tests", f"these are {n_tests} tests; write at most {MAX_TESTS}.")
        return ()
    return tuple(_side_by_side(shapes, parallel, depths, verify))


def _side_by_side(
    shapes: list[tuple[int, int]], parallel: tuple[int, ...], depths: list[int], verify: tuple[int, ...]
) -> Iterator[Test]:
    """Yield the tests in the order in which they share what is filled: a deeper one goes on where the last ended."""
    for n_parallel in parallel:
        for depth in depths:
            for n_prompt, n_gen in shapes:
                yield Test(n_prompt=n_prompt, n_gen=n_gen, n_depth=depth, n_parallel=n_parallel)
            if n_parallel == parallel[0]:
                yield from (Test(n_prompt=0, n_gen=0, n_depth=depth, n_verify=n) for n in verify)


def _pairs(reader: Reader, entry: Entry | None) -> tuple[tuple[int, int], ...]:
    if entry is None:
        return ()
    items = reader.items(entry, "tests.pg")
    if items and all(isinstance(item, Scalar) for item in items):
        texts = ", ".join(item.text for item in items if isinstance(item, Scalar))
        reader.fault(entry.line, "tests.pg", f"{show(texts)} is no list of pairs; write [[512, 128]].")
        return ()
    found = [(item.line, pair) for item in items if (pair := _pair(reader, item)) is not None]
    return reader.distinct(found, "tests.pg", lambda pair: f"[{pair[0]}, {pair[1]}]")


def _pair(reader: Reader, item: Node) -> tuple[int, int] | None:
    parts = item.items if isinstance(item, Sequence) else ()
    scalars = [part for part in parts if isinstance(part, Scalar)]
    if len(parts) != 2 or len(scalars) != 2:
        reader.fault(item.line, "tests.pg", "a pair is [n_prompt, n_gen]; write it like [512, 128].")
        return None
    numbers = [reader.attempt(part, "tests.pg", _tokens_in_a_pair) for part in scalars]
    return None if None in numbers else (numbers[0] or 0, numbers[1] or 0)


def _tokens(scalar: Scalar) -> int:
    return int(whole_number(scalar, 0, MAX_TOKENS))


def _sequences(scalar: Scalar) -> int:
    return int(whole_number(scalar, 1, MAX_PARALLEL))


def _tokens_in_a_pair(scalar: Scalar) -> int:
    return int(whole_number(scalar, 1, MAX_TOKENS))
