"""What a file is that should have been a GGUF and is not (stdlib only)."""

_STARTS = (
    (b"version https://git-lfs", "a Git LFS pointer: the real file was not fetched. Run `git lfs pull`."),
    (b"PK\x03\x04", "a ZIP archive or a PyTorch checkpoint. Convert the model to GGUF first."),
    (b"\x80\x02", "a Python pickle. Convert the model to GGUF first."),
    (b"\x1f\x8b", "a gzip archive. Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "a zstd archive. Unpack it first."),
    (b"FUGG", "a big-endian GGUF file with a swapped magic. Download the little-endian one."),
    (b"lmgg", "a GGML file from before GGUF. Convert the model again."),
    (b"fmgg", "a GGML file from before GGUF. Convert the model again."),
    (b"tjgg", "a GGML file from before GGUF. Convert the model again."),
    (b"algg", "a LoRA adapter from before GGUF. Convert it again, and name the model itself."),
)


def what_else(start: bytes, file_bytes: int) -> str:
    """Return what a file is whose first bytes (512 are enough) are not GGUF's, and what to do: one or two sentences."""
    if file_bytes == 0:
        return "empty. Download or copy it again."
    for magic, meaning in _STARTS:
        if start.startswith(magic):
            return meaning
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page. Download the model again, from the file's direct link."
    if text.startswith((b'{"', b"{ ", b"{\n", b"[{")):
        shown = start[:80].decode("utf-8", "backslashreplace")
        return f"a JSON text, most likely a server's error: {shown!r}. Download the model again."
    if start[8:10] == b'{"':
        return "a safetensors file. Convert the model to GGUF first."
    if file_bytes < 8:
        return f"only {file_bytes} bytes long. Download or copy it again."
    if not start.strip(b"\0"):
        return "filled with zeros at its start, like an unfinished download. Download or copy it again."
    return f"something that starts with {start[:8].hex(' ')}. Name a GGUF file."
