"""Three hundred damaged files, given to the real llama.cpp as models: each attempt ends, and nothing else dies."""

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from schema.host import Fingerprint
from schema.job import ModelRef, Test
from schema.record import Record
from schema.settings import Settings
from tests.supervised import group_of, records
from worker.build import find_build
from worker.fingerprint.take import take
from worker.gguf import read_header
from worker.models import reference, resolve
from worker.supervisor import Supervisor

pytestmark = pytest.mark.model

N_FILES = 300
REACH_LLAMA_CPP = 20
"""At least so many must get past our own reader; each of them costs a process."""

TEST = Test(n_prompt=4, n_gen=0)
SETTINGS = Settings(n_threads=1, n_batch=8, n_ubatch=8)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a whole small model."""
    home = tmp_path_factory.mktemp("home")
    ref = reference("synthetic", "test-tiny:Q8_0", home)
    return resolve(ref, home, lambda *_: None).path.read_bytes()


def damaged(good: bytes, header_bytes: int, rng: random.Random) -> bytes:
    """Return the file with bytes of header or weights changed, a piece cut out or doubled, or its end cut off."""
    data = bytearray(good)
    kind = rng.randrange(7)
    if kind < 3:
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(8, header_bytes)] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
    elif kind == 3:
        first = rng.randrange(8, header_bytes)
        del data[first : first + rng.randrange(1, 64)]
    elif kind == 4:
        first = rng.randrange(8, header_bytes)
        data[first:first] = data[first : first + rng.randrange(1, 64)]
    elif kind == 5:
        first = rng.randrange(header_bytes, len(data) - 1024)
        data[first : first + 1024] = b"\xff" * 1024
    else:
        del data[rng.randrange(0, len(data)) :]
    return bytes(data)


def measure(path: Path, fingerprint: Fingerprint, home: Path) -> Record:
    ref = ModelRef(source="path", spec=str(path), identity=f"path:{path.name}")
    group = group_of(ref, TEST, timeout_seconds=20.0, settings=SETTINGS, repetitions=1)
    (found,) = records(list(Supervisor(group=group, fingerprint=fingerprint, home=home, python=sys.executable).run()))
    return found


def test_three_hundred_damaged_files_are_three_hundred_attempts_that_end(good: bytes, tmp_path: Path) -> None:
    fingerprint = take(tmp_path, find_build(sys.executable, tmp_path))
    whole = tmp_path / "whole.gguf"
    whole.write_bytes(good)
    header_bytes = read_header(whole).data_offset
    rng = random.Random(300)
    ends: Counter[str] = Counter()
    for number in range(N_FILES):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(damaged(good, header_bytes, rng))
        found = measure(path, fingerprint, tmp_path)
        ends[found.failure.stage if found.failure else "measured"] += 1
        if found.failure is not None:
            assert found.failure.message
            assert found.failure.kind != "timeout", (number, found.failure)
        path.unlink()
    assert ends.total() == N_FILES
    assert N_FILES - ends["model"] >= REACH_LLAMA_CPP, ends
    assert measure(whole, fingerprint, tmp_path).status == "measured"
