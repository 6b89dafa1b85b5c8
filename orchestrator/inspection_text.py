"""An inspection as rows for people and as columns for programs; pure."""

from typing import Any

from orchestrator.tables import Row
from worker.inspection import Inspection

UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def as_columns(found: Inspection) -> dict[str, Any]:
    """Return what was found as one row: name of the column -> value."""
    sizes, experts = found.sizes, found.sizes.experts
    return {
        "path": str(found.path),
        "parts": len(found.parts),
        "file_bytes": found.file_bytes,
        "what": found.what,
        "runs": found.refused is None,
        "name": found.name,
        "architecture": sizes.architecture or None,
        "file_type": found.file_type,
        "bits_per_weight": found.bits_per_weight,
        "n_params": sizes.n_params,
        "n_params_active": sizes.n_params_active,
        "weight_bytes": sizes.weight_bytes,
        "bytes_per_token": sizes.bytes_per_token,
        "kv_bytes_per_token": sizes.kv_bytes_per_token,
        "kv_bytes_per_token_beyond_window": sizes.kv_bytes_per_token_beyond_window,
        "n_layer": sizes.n_layer,
        "n_ctx_train": sizes.n_ctx_train,
        "sliding_window": sizes.sliding_window,
        "n_expert": experts.count if experts else None,
        "n_expert_used": experts.used if experts else None,
        "tokenizer": found.tokenizer,
        "n_tokens": found.n_tokens,
        "chat_template": found.has_chat_template,
        "notes": " ".join(found.notes),
        "tensors": "; ".join(f"{item.name}: {item.text}" for item in found.classes),
    }


def as_facts(found: Inspection) -> list[Row]:
    """Return what was found as rows of what it is called and its value; what is not known is left out."""
    sizes = found.sizes
    total, active = _amount(sizes.n_params), _amount(sizes.n_params_active)
    bits = f"{found.bits_per_weight:.2f} bits per weight" if found.bits_per_weight else None
    facts: list[tuple[str, str | None]] = [
        ("file", str(found.path)),
        ("size", _amount(found.file_bytes, "B") + (f" in {len(found.parts)} parts" if len(found.parts) > 1 else "")),
        *((f"part {number}", part.name) for number, part in enumerate(found.parts, 1) if len(found.parts) > 1),
        ("what it is", found.what),
        ("runs", "no" if found.refused else "nothing in the header speaks against it"),
        ("name", found.name),
        ("architecture", sizes.architecture or None),
        ("quantisation, as named", found.file_type),
        ("quantisation, as found", bits),
        ("parameters", total),
        ("active parameters", active),
        ("read per decoded token", _amount(sizes.bytes_per_token, "B")),
        ("KV cache per token", _amount(sizes.kv_bytes_per_token, "B")),
        ("KV cache per token, windows full", _amount(sizes.kv_bytes_per_token_beyond_window, "B")),
        ("layers", _plain(sizes.n_layer)),
        ("context trained for", _plain(sizes.n_ctx_train)),
        ("experts used", sizes.experts.text if sizes.experts else None),
        ("tokenizer", _tokenizer(found)),
        ("chat template", "yes" if found.has_chat_template else "no"),
        *(("note", text) for text in found.notes),
        *((item.name, f"{item.text}, {_amount(item.n_bytes, 'B')}") for item in found.classes),
    ]
    return [(what, value) for what, value in facts if value]


def _tokenizer(found: Inspection) -> str:
    if found.tokenizer is None:
        return "none"
    return found.tokenizer + (f", {found.n_tokens} tokens" if found.n_tokens is not None else "")


def _plain(number: int | None) -> str | None:
    return None if number is None else str(number)


def _amount(number: int | None, unit: str = "") -> str:
    """Return a number as people read it: `1.24 G`, `8.00 kB`; "" where it is not known."""
    if number is None:
        return ""
    for size, prefix in UNITS:
        if number >= size:
            return f"{number / size:.2f} {prefix}{unit}" if number < 10**30 else f"{number} {unit}".rstrip()
    return f"{number} {unit}".rstrip()
