"""What a file is that should have been a GGUF and is not (stdlib only)."""

_LFS = (b"version https://git-lfs", b"version https://hawser")
_BEFORE_GGUF = "a GGML file from before GGUF. Convert the model again, or download it as GGUF."
_OLD_ADAPTER = "a LoRA adapter from before GGUF. Convert it again, and name the model itself."
_CONVERT = "Convert the model to GGUF first."

_STARTS = (
    (b"PK\x03\x04", f"a ZIP archive or a PyTorch checkpoint. {_CONVERT}"),
    (b"\x80\x02", f"a Python pickle. {_CONVERT}"),
    (b"\x80\x04", f"a Python pickle. {_CONVERT}"),
    (b"\x93NUMPY", f"a numpy array. {_CONVERT}"),
    (b"\x89HDF", f"an HDF5 file. {_CONVERT}"),
    (b"\x1f\x8b", "a gzip archive. Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "a zstd archive. Unpack it first."),
    (b"BZh", "a bzip2 archive. Unpack it first."),
    (b"\xfd7zXZ", "an xz archive. Unpack it first."),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive. Unpack it first."),
    (b"Rar!", "a RAR archive. Unpack it first."),
    (b"FUGG", "a big-endian GGUF file with a swapped magic. Download the little-endian one."),
    # The magic is a number, so its letters stand backwards in a little-endian file.
    *((magic, _BEFORE_GGUF) for magic in (b"lmgg", b"fmgg", b"tjgg", b"ggml", b"ggmf", b"ggjt")),
    *((magic, _OLD_ADAPTER) for magic in (b"algg", b"ggla")),
)


def what_else(start: bytes, file_bytes: int) -> str:
    """Return what a file is whose first bytes (512 are enough) are not GGUF's, and what to do: one or two sentences."""
    if file_bytes == 0:
        return "empty. Download or copy it again."
    for magic, meaning in _STARTS:
        if start.startswith(magic):
            return meaning
    if start[8:9] == b"{":
        return f"a safetensors file. {_CONVERT}"
    if start[257:262] == b"ustar":
        return "a tar archive. Unpack it first."
    if said := _text(start):
        return said
    if file_bytes < 8:
        return f"only {file_bytes} bytes long. Download or copy it again."
    if not start.strip(b"\0"):
        return "filled with zeros at its start, like an unfinished download. Download or copy it again."
    return f"something that starts with {start[:8].hex(' ')}. Name a GGUF file."


def _text(start: bytes) -> str | None:
    """Return what a file is that begins with text, else None."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(_LFS):
        return "a Git LFS pointer: the real file was not fetched. Run `git lfs pull`."
    if text[:1] == b"<" and (text[1:2].isalpha() or text[1:2] in (b"!", b"?")):
        return "a web page. Download the model again, from the file's direct link."
    shown = text[:80].decode("utf-8", "backslashreplace")
    if text[:1] in (b"{", b"[") and text[1:].lstrip()[:1] in (b'"', b"{", b"}", b"]", b"["):
        return f"a JSON text, most likely a server's error: {shown!r}. Download the model again."
    if len(text) >= 8 and all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in text):
        return f"a text that begins with {shown!r}. Download the model again, from the file's direct link."
    return None
