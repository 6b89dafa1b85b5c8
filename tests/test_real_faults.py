"""What the real llama.cpp refuses or passes over, and the words that the attempt has for it."""

import random
import struct
import sys
from pathlib import Path

import pytest

from schema.host import Fingerprint
from schema.job import ModelRef, Test
from schema.record import Record
from schema.settings import Settings
from tests.supervised import group_of, records
from worker.build import find_build
from worker.fingerprint.take import take
from worker.ggml import BY_NAME
from worker.gguf_writer import Entry, header_bytes, lay_out, padded
from worker.models import reference
from worker.supervisor import Supervisor

pytestmark = pytest.mark.model

WIDTH, HIDDEN, VOCABULARY, LAYERS = 64, 128, 100, 2


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def fingerprint(home: Path) -> Fingerprint:
    return take(home, find_build(sys.executable, home))


def measure(home: Path, fingerprint: Fingerprint, model: ModelRef, test: Test, settings: Settings) -> Record:
    group = group_of(model, test, settings=settings, repetitions=1)
    events = Supervisor(group=group, fingerprint=fingerprint, home=home, python=sys.executable).run()
    (found,) = records(list(events))
    return found


def bert(path: Path) -> ModelRef:
    """Write a tiny encoder with random weights."""
    named = [
        ("token_embd.weight", (WIDTH, VOCABULARY)),
        ("token_types.weight", (WIDTH, 2)),
        ("position_embd.weight", (WIDTH, 512)),
        *_norm("token_embd_norm"),
    ]
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            named += [(f"{block}.{name}.weight", (WIDTH, WIDTH)), (f"{block}.{name}.bias", (WIDTH,))]
        named += [(f"{block}.ffn_up.weight", (WIDTH, HIDDEN)), (f"{block}.ffn_up.bias", (HIDDEN,))]
        named += [(f"{block}.ffn_down.weight", (HIDDEN, WIDTH)), (f"{block}.ffn_down.bias", (WIDTH,))]
        named += [*_norm(f"{block}.attn_output_norm"), *_norm(f"{block}.layer_output_norm")]
    tensors = lay_out((name, shape, BY_NAME["F32"]) for name, shape in named)
    entries: list[Entry] = [
        ("general.architecture", "string", "bert"),
        ("bert.context_length", "u32", 512),
        ("bert.embedding_length", "u32", WIDTH),
        ("bert.block_count", "u32", LAYERS),
        ("bert.feed_forward_length", "u32", HIDDEN),
        ("bert.attention.head_count", "u32", 4),
        ("bert.attention.layer_norm_epsilon", "f32", 1e-5),
        ("bert.attention.causal", "bool", False),
        ("bert.vocab_size", "u32", VOCABULARY),
        ("tokenizer.ggml.token_type_count", "u32", 2),
        ("tokenizer.ggml.model", "string", "no_vocab"),
    ]
    rng = random.Random(1)
    data = b""
    for tensor in tensors:
        weights = [rng.gauss(0, 0.1) for _ in range(tensor.n_weights)]
        data = data.ljust(tensor.offset, b"\0") + struct.pack(f"<{tensor.n_weights}f", *weights)
    path.write_bytes(header_bytes(entries, tensors) + data.ljust(padded(len(data)), b"\0"))
    return ModelRef(source="path", spec=str(path), identity=f"path:{path.name}")


def _norm(name: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(f"{name}.weight", (WIDTH,)), (f"{name}.bias", (WIDTH,))]


@pytest.mark.parametrize("test", [Test(n_prompt=8, n_gen=0), Test(n_prompt=0, n_gen=4)])
def test_an_encoder_cannot_decode_and_is_named(
    home: Path, fingerprint: Fingerprint, tmp_path: Path, test: Test
) -> None:
    found = measure(home, fingerprint, bert(tmp_path / "bert.gguf"), test, Settings(n_threads=1))
    assert found.failure is not None
    assert (found.failure.stage, found.failure.kind) == ("context", "error")
    assert "it is an encoder" in found.failure.message


def test_a_quantised_v_cache_without_flash_attention_is_refused_in_words(home: Path, fingerprint: Fingerprint) -> None:
    settings = Settings(n_threads=1, type_v="q8_0", flash_attn="off")
    model = reference("synthetic", "test-tiny:Q8_0", home)
    found = measure(home, fingerprint, model, Test(n_prompt=8, n_gen=0), settings)
    assert found.failure is not None
    assert "set flash_attn to on, or type_v to f16" in found.failure.message


def test_a_context_beyond_the_models_training_is_measured_and_noted(home: Path, fingerprint: Fingerprint) -> None:
    model = reference("synthetic", "test-tiny:Q8_0", home)
    found = measure(home, fingerprint, model, Test(n_prompt=5000, n_gen=0), Settings(n_threads=1))
    assert found.status == "measured"
    assert "a context of 5120 tokens, of which the model was trained for 4096" in found.quality_reasons
