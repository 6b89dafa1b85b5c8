"""Why llama.cpp cannot run what a GGUF header describes, in the words of its reader (stdlib only)."""

from schema.problem import show
from worker.experts import experts_refused
from worker.ggml import REMOVED
from worker.gguf import Header
from worker.loadable import ENGINE, unknown_architecture

MAX_LAYERS = 512
"""LLAMA_MAX_LAYERS; llama.cpp aborts on a file with more."""

NEEDED = ("context_length", "embedding_length", "block_count")
"""What llama.cpp reads of every architecture, in `load_hparams` of src/llama-model.cpp."""

_TYPES = {
    "adapter": "a LoRA adapter",
    "mmproj": "a multimodal projector",
    "imatrix": "an importance matrix",
}
_ARCHITECTURES = {
    "clip": "a multimodal projector",
    "controlvector": "a control vector",
    **dict.fromkeys(("flux", "sd1", "sd3", "sdxl", "aura", "ltxv", "wan", "hidream", "lumina2"), "an image model"),
}
_TENSORS = {
    ".lora_a": "a LoRA adapter",
    ".lora_b": "a LoRA adapter",
    ".in_sum2": "an importance matrix",
}


def refusal(header: Header) -> str | None:
    """Return why this is nothing to run, as the rest of a sentence that begins with its name; None where it is."""
    reason, what = refused_by_all(header), unknown(header)
    if reason or what is None:
        return reason
    return f"{what}. Use a newer tokfleet, or another model."


def refused_by_all(header: Header) -> str | None:
    """Return the same but for what is `unknown`: why no llama.cpp can run it, whatever it knows."""
    what = not_a_model(header)
    if what:
        return f"is {what}, not a language model. Name the model itself."
    if not header.tensors:
        return "holds a vocabulary only, there is nothing to run. Name a file with weights."
    architecture = header.metadata.get("general.architecture")
    if architecture is None:
        return "does not say its general.architecture, so llama.cpp cannot load it. Convert the model again."
    if not isinstance(architecture, str):
        return "has a general.architecture that is no text, so llama.cpp cannot load it. Convert the model again."
    if unknown_architecture(architecture):
        return None
    return _missing(header, architecture) or experts_refused(header, architecture)


def unknown(header: Header) -> str | None:
    """Return what of the file is not known here, as the rest of a sentence: a build of one's own may know it."""
    architecture = header.metadata.get("general.architecture")
    found = unknown_architecture(architecture) if isinstance(architecture, str) else None
    return found or _unknown_types(header)


def _unknown_types(header: Header) -> str | None:
    tensors = [tensor for tensor in header.tensors if tensor.type.is_unknown]
    if not tensors:
        return None
    first = tensors[0]
    kind = first.type.name if first.type.code in REMOVED else str(first.type.code)
    more = f" and {len(tensors) - 1} more like it" if len(tensors) > 1 else ""
    return f"has a tensor {show(first.name)} of the type {kind}{more}, which the llama.cpp of {ENGINE} does not know"


def not_a_model(header: Header) -> str | None:
    """Return what a GGUF is that holds no language model by its own words or its tensors' names, else None."""
    architecture, kind = (header.metadata.get(f"general.{key}") for key in ("architecture", "type"))
    found = _TYPES.get(str(kind)) or _ARCHITECTURES.get(str(architecture))
    if found is None and "adapter.type" in header.metadata:
        found = _TYPES["adapter"]
    if found is None and header.tensors:
        name = header.tensors[0].name
        found = next((what for ending, what in _TENSORS.items() if name.endswith(ending)), None)
    return found


def _missing(header: Header, architecture: str) -> str | None:
    for key in (f"{architecture}.{name}" for name in NEEDED):
        if key not in header.metadata:
            return f"does not say its {key}, so llama.cpp cannot load it. Convert the model again."
        if header.count(key) is None:
            value = show(str(header.metadata[key]))
            return f"says {key} is {value}, not a whole number above 0, so llama.cpp cannot load it."
    n_layer = header.integer(f"{architecture}.block_count")
    if n_layer and n_layer > MAX_LAYERS:
        return f"says it has {n_layer} layers; llama.cpp loads at most {MAX_LAYERS}."
    return None
