"""What llama.cpp's return codes and the lines of its log mean, in words (stdlib only).

The lines are those of llama.cpp and its back ends (src/llama-context.cpp, src/llama-mmap.cpp,
ggml/src/ggml-alloc.c, ggml-cuda, ggml-metal, ggml-vulkan, ggml-sycl), of today's and of older releases.
"""

import re

MIB = 1 << 20
DECODE_CODES = {
    2: "aborted by a callback while it computed",
    1: "no room left in the context for the batch",
    -1: "llama.cpp refused the batch as invalid",
    -2: "llama.cpp could not allocate the memory that the computation needs",
    -3: "the back end failed while it computed",
}
"""Return codes of `llama_decode` (llama.h, and llama_context::decode for those below -1)."""

HARMLESS = re.compile(r"mlock|pinned memory|reorder temp buffer|falling back|retrying without")
"""Lines that tell of an allocation that failed and was done without."""

ALLOCATIONS = tuple(
    re.compile(pattern)
    for pattern in (
        r"allocating (?P<mib>[\d.]+) MiB on (?P<device>device \d+): \w+ failed",
        r"failed to allocate (?P<name>\S+) buffer of (?:size )?(?P<bytes>\d+)",
        r"failed to allocate buffer(?: of size|, size =) *(?P<mib>[\d.]+) MiB",
        r"failed to allocate output buffer of size (?P<mib>[\d.]+) MiB",
        r"(?P<device>Device) memory allocation of size (?P<bytes>\d+) failed",
        r"can't allocate (?P<bytes>\d+) Bytes of memory on (?P<device>device|host)",
        r"attempted to allocate +(?P<mib>[\d.]+) MB",
        r"failed to allocate +(?P<mib>[\d.]+) MB",
        r"failed to allocate buffer of size (?P<bytes>\d+)",
        r"unable to allocate (?P<name>(?!backend )\S+) buffer",
    )
)
"""How back ends say what they could not allocate: how much, on which device, for a buffer of which name."""

OUT_OF_MEMORY = re.compile(
    r"out of memory|out of device memory|outofmemory|outofdevicememory|outofhostmemory|insufficient memory"
    r"|failed to allocate|unable to allocate|can't allocate|cannot allocate|could not allocate|memory allocation"
    r"|memoryerror|bad_alloc|alloc_failed",
    re.IGNORECASE,
)
"""How llama.cpp, its back ends, the C++ library and Python say that memory ran out."""

KNOWN = (
    (
        re.compile(r"V cache quantization requires flash_attn|quantized V cache .*[Ff]lash.?[Aa]tt"),
        "a quantised V cache needs flash attention: set flash_attn to on, or type_v to f16",
    ),
    (
        re.compile(r"cannot decode batches with this context \(use llama_encode"),
        "this model is an encoder, such as an embedding model: it cannot decode, so it has no such rate",
    ),
)
"""Lines that have a meaning of their own, and that meaning."""

TELLING = re.compile(
    r"GGML_ASSERT|GGML_ABORT|terminate called|what\(\):|[A-Za-z]Error\b|error|fail|unable|invalid|requires|not support"
)

SAYS_NOTHING = re.compile(r"failed to load model( from .*)?$")
"""Lines that end every failed load; the cause stands before them."""


def decode_error(code: int, told: str | None = None) -> str:
    """Return what a return code of `llama_decode` other than 0 means; `told` is what the log says besides."""
    meaning = DECODE_CODES.get(code, "a fatal error inside llama.cpp")
    return f"llama_decode returned {code}: {meaning}" + (f" ({told})" if told else "")


def out_of_memory(text: str) -> bool:
    """Return whether `text`, lines of a log or a message, says that memory ran out."""
    return any(OUT_OF_MEMORY.search(line) and not HARMLESS.search(line) for line in text.splitlines())


def reason(text: str) -> str | None:
    """Return what `text`, lines of a log, says went wrong: what it means where we know, else its last such lines."""
    for pattern, meaning in KNOWN:
        if pattern.search(text):
            return meaning
    told = [line.strip() for line in text.splitlines() if TELLING.search(line) and not HARMLESS.search(line)]
    causes = [line for line in told if not SAYS_NOTHING.search(line)] or told
    return _memory_wanted(text) or "; ".join(causes[-2:]) or None


def _memory_wanted(text: str) -> str | None:
    """Return how much memory could not be had and where, from all lines that tell a part of it."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = next(filter(None, (pattern.search(line) for pattern in ALLOCATIONS)), None)
        if match and not HARMLESS.search(line):
            found |= {name: value for name, value in match.groupdict().items() if value}
    if not found:
        return None
    mib = float(found["mib"]) if "mib" in found else int(found["bytes"]) / MIB if "bytes" in found else None
    amount = "memory" if mib is None else f"{mib:.2f} MiB"
    device, name = found.get("device", "").lower(), found.get("name")
    place = f"{device} ({name})" if device and name else device or name
    return f"out of memory: {amount} could not be allocated" + (f" on {place}" if place else "")


def notes(text: str) -> tuple[str, ...]:
    """Return what `text`, lines of a log, says was done otherwise than asked though nothing failed, in words."""
    found = []
    refused = re.search(r"failed to mlock (\d+)-byte buffer \(after previously locking (\d+) bytes\): (.+)", text)
    if refused:
        found.append(f"mlock was refused ({refused[3].strip()}): the weights are not locked in memory, see `ulimit -l`")
    beyond = re.search(r"n_ctx(?:_seq|_per_seq)? \((\d+)\) > n_ctx_train \((\d+)\)", text)
    if beyond:
        found.append(f"a context of {beyond[1]} tokens, of which the model was trained for {beyond[2]}")
    return tuple(found)
