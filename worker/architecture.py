"""The tensors and the metadata that llama.cpp expects of a shape's architecture (stdlib only).

Sources: `load_arch_tensors` of src/models/{gemma3,llama,phi3,qwen2,qwen3,qwen3moe}.cpp in llama.cpp.
"""

from worker.gguf_writer import Entry
from worker.shapes import Shape

Named = tuple[str, tuple[int, ...]]
"""A tensor's name and shape, row width first."""


def tensors(shape: Shape) -> list[Named]:
    """Return name and shape of every tensor, in the order in which llama.cpp's quantizer writes them."""
    named: list[Named] = [] if shape.tied else [("output.weight", (shape.n_embd, shape.n_vocab))]
    named += [("output_norm.weight", (shape.n_embd,))]
    if shape.rope_factors:
        named += [("rope_freqs.weight", (len(shape.rope_factors),))]
    named += [("token_embd.weight", (shape.n_embd, shape.n_vocab))]
    for layer in range(shape.n_layer):
        named += sorted((f"blk.{layer}.{name}", size) for name, size in _block(shape))
    return named


def _block(shape: Shape) -> list[Named]:
    block = [
        ("attn_norm.weight", (shape.n_embd,)),
        ("attn_output.weight", (shape.n_head * shape.head_size, shape.n_embd)),
        ("ffn_norm.weight", (shape.n_embd,)),
    ]
    if shape.architecture == "phi3":
        return block + _fused(shape)
    return block + _separate(shape) + (_experts(shape) if shape.n_expert else _dense(shape))


def _dense(shape: Shape) -> list[Named]:
    return [
        ("ffn_down.weight", (shape.n_ff, shape.n_embd)),
        ("ffn_gate.weight", (shape.n_embd, shape.n_ff)),
        ("ffn_up.weight", (shape.n_embd, shape.n_ff)),
    ]


def _experts(shape: Shape) -> list[Named]:
    """All experts' weights in one tensor of each kind, and the gate that chooses among them."""
    return [
        ("ffn_down_exps.weight", (shape.n_ff_expert, shape.n_embd, shape.n_expert)),
        ("ffn_gate_exps.weight", (shape.n_embd, shape.n_ff_expert, shape.n_expert)),
        ("ffn_gate_inp.weight", (shape.n_embd, shape.n_expert)),
        ("ffn_up_exps.weight", (shape.n_embd, shape.n_ff_expert, shape.n_expert)),
    ]


def _fused(shape: Shape) -> list[Named]:
    """One tensor for query, key and value, and one for both halves of the gated feed-forward."""
    width = (shape.n_head + 2 * shape.n_head_kv) * shape.head_size
    return [
        ("attn_qkv.weight", (shape.n_embd, width)),
        ("ffn_down.weight", (shape.n_ff, shape.n_embd)),
        ("ffn_up.weight", (shape.n_embd, 2 * shape.n_ff)),
    ]


def _separate(shape: Shape) -> list[Named]:
    query, key_value = shape.n_head * shape.head_size, shape.n_head_kv * shape.head_size
    named: list[Named] = [
        ("attn_q.weight", (shape.n_embd, query)),
        ("attn_k.weight", (shape.n_embd, key_value)),
        ("attn_v.weight", (shape.n_embd, key_value)),
    ]
    if shape.architecture == "qwen2":
        named += [("attn_q.bias", (query,)), ("attn_k.bias", (key_value,)), ("attn_v.bias", (key_value,))]
    if shape.architecture in ("gemma3", "qwen3", "qwen3moe"):
        named += [(f"attn_{which}_norm.weight", (shape.head_size,)) for which in "qk"]
    if shape.architecture == "gemma3":
        named += [(f"post_{which}_norm.weight", (shape.n_embd,)) for which in ("attention", "ffw")]
    return named


def metadata(shape: Shape) -> list[Entry]:
    """Return the architecture's own keys; the vocabulary is empty but for its size, which llama.cpp allows."""
    entries: list[Entry] = [
        ("context_length", "u32", shape.n_ctx_train),
        ("embedding_length", "u32", shape.n_embd),
        ("block_count", "u32", shape.n_layer),
        ("feed_forward_length", "u32", shape.n_ff),
        ("attention.head_count", "u32", shape.n_head),
        ("attention.head_count_kv", "u32", shape.n_head_kv),
        ("attention.layer_norm_rms_epsilon", "f32", shape.rms_eps),
        ("attention.key_length", "u32", shape.head_size),
        ("attention.value_length", "u32", shape.head_size),
        ("rope.dimension_count", "u32", shape.head_size),
        ("rope.freq_base", "f32", shape.rope_freq_base),
        ("vocab_size", "u32", shape.n_vocab),
    ]
    if shape.sliding_window:
        entries.append(("attention.sliding_window", "u32", shape.sliding_window))
    if shape.n_expert:
        entries.append(("expert_count", "u32", shape.n_expert))
        entries.append(("expert_used_count", "u32", shape.n_expert_used))
        entries.append(("expert_feed_forward_length", "u32", shape.n_ff_expert))
    if shape.rope_scale:
        entries += [("rope.scaling.type", "string", "linear"), ("rope.scaling.factor", "f32", shape.rope_scale)]
    if shape.architecture == "phi3":
        entries.append(("rope.scaling.original_context_length", "u32", shape.n_ctx_train))
    named: list[Entry] = [(f"{shape.architecture}.{key}", kind, value) for key, kind, value in entries]
    return [*named, ("tokenizer.ggml.model", "string", "no_vocab")]
