"""Five thousand damaged headers: each is a model error or a right answer, in little time and memory."""

import json
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from orchestrator.inspection_text import as_columns, as_facts
from schema.errors import ModelError
from worker import synthetic
from worker.ggml import BY_NAME
from worker.gguf_writer import Entry, header_bytes, lay_out
from worker.inspection import Inspection, inspect

N_FILES = 5000
MAX_BYTES = 200 << 20
HOSTILE = (
    0,
    1,
    7,
    0xFF,
    0xFFFF,
    1 << 20,
    1 << 31,
    1 << 32,
    (1 << 32) - 1,
    1 << 61,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
LISTS = {
    "tokenizer.ggml.tokens": (8, [struct.pack("<Q", 3) + b"tok"] * 3000),
    "tokenizer.ggml.scores": (6, [struct.pack("<f", 0.5)] * 3000),
    "general.tags": (8, [struct.pack("<Q", 4) + b"chat"] * 5),
    "llama.attention.head_count_kv": (4, [struct.pack("<I", 4)] * 4),
}


def listed(key: str) -> bytes:
    code, items = LISTS[key]
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<IIQ", 9, code, len(items)) + b"".join(items)


def plain() -> bytes:
    model = synthetic.parse("test-tiny:Q4_K_M")
    return header_bytes(synthetic.metadata(model), synthetic.header(model).tensors)


def with_tokenizer() -> bytes:
    entries: list[Entry | bytes] = [
        ("general.architecture", "string", "llama"),
        ("general.name", "string", "Modèle\r\n\x1b[2J"),
        ("llama.context_length", "u32", 4096),
        ("llama.embedding_length", "u32", 256),
        ("llama.block_count", "u32", 4),
        ("llama.attention.head_count", "u32", 8),
        ("llama.rope.freq_base", "f32", 10000.0),
        ("tokenizer.ggml.model", "string", "gpt2"),
        ("tokenizer.chat_template", "string", "{{ messages }}" * 50),
        *map(listed, LISTS),
    ]
    return header_bytes(entries, lay_out([("token_embd.weight", (256, 3000), BY_NAME["Q8_0"])]))


def with_experts() -> bytes:
    numbers = {
        "context_length": 4096,
        "embedding_length": 64,
        "block_count": 2,
        "expert_count": 8,
        "expert_used_count": 2,
    }
    entries: list[Entry] = [("general.architecture", "string", "qwen3moe")]
    entries += [(f"qwen3moe.{key}", "u32", number) for key, number in numbers.items()]
    named = [(f"blk.{layer}.ffn_{which}_exps.weight", (64, 32, 8)) for layer in range(2) for which in ("up", "down")]
    return header_bytes(entries, lay_out((name, shape, BY_NAME["Q4_0"]) for name, shape in named))


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def hostile(data: bytearray, rng: random.Random) -> None:
    """Put a number that is no length or count over eight bytes, or over one of the counts at the start."""
    at = rng.choice((8, 16, rng.randrange(len(data) - 8), rng.randrange(24, 400)))
    data[at : at + 8] = struct.pack("<Q", rng.choice(HOSTILE))


def hostile_near_a_text(data: bytearray, rng: random.Random) -> None:
    """Change what follows a key: its type, the type of its items, or how many there are."""
    word = rng.choice((b"count", b"length", b"tokens", b"model", b"weight", b"template"))
    at = data.find(word, rng.randrange(len(data)))
    at = max(at, 30) + rng.randrange(24)
    width = rng.choice((4, 8))
    data[at : at + width] = rng.choice(HOSTILE).to_bytes(8, "little")[:width]


def shuffle(data: bytearray, rng: random.Random) -> None:
    start, to, size = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 200)
    data[to : to + size] = data[start : start + size]


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    cut,
    flip,
    flip,
    hostile,
    hostile,
    hostile_near_a_text,
    hostile_near_a_text,
    shuffle,
)


def look(path: Path) -> Inspection | str:
    """Return what is found, after using all of it as the command does, or the reason why it is refused."""
    try:
        found = inspect(path)
    except ModelError as error:
        return str(error).replace(str(path), "FILE")
    json.dumps(as_columns(found))
    assert as_facts(found)
    for n_ctx in (1, 4096):
        found.sizes.kv_bytes(n_ctx, "f16", "f16")
    return found


def test_whatever_is_damaged_is_refused_with_a_reason_or_read_right(tmp_path: Path) -> None:
    rng = random.Random(20240817)
    whole = [plain(), with_tokenizer(), with_experts()]
    path = tmp_path / "model.gguf"
    n_read = 0
    for number in range(N_FILES):
        data = bytearray(whole[number % len(whole)])
        for _ in range(rng.choice((1, 1, 1, 2))):
            if len(data) > 500:
                rng.choice(DAMAGES)(data, rng)
        with path.open("wb") as file:
            file.write(data)
            if rng.random() < 0.5:
                file.truncate(rng.choice((16 << 20, 1 << 40)))  # a hole where the weights would be
        watched = number % 10 == 0
        if watched:
            tracemalloc.start()
        found = look(path)
        if isinstance(found, Inspection):
            n_read += 1
        else:
            assert found.startswith(("FILE ", "FILE: "))
            assert found.endswith(".")
            assert len(found) < 500
        if watched:
            assert tracemalloc.get_traced_memory()[1] < MAX_BYTES, number
            tracemalloc.stop()
    assert 500 < n_read < 4500
