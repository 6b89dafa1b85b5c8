"""llama.cpp's log as the source of what no function tells: what was offloaded, cached, allocated (stdlib only)."""

import re

from worker import reasons

GGML_LOG_LEVEL_DEBUG = 1
MIB = 1 << 20


class LogText:
    """What llama.cpp wrote since the last `clear`, so that it can be searched."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.overridden: dict[str, int] = {}

    def add(self, level: int, text: str) -> bool:
        """Take a piece of the log; returns whether people should see it. Debug lines are only counted."""
        if level == GGML_LOG_LEVEL_DEBUG:
            found = re.search(r"buffer type overridden to (\S+)", text)
            if found:
                self.overridden[found[1]] = self.overridden.get(found[1], 0) + 1
            return False
        self.lines.append(text)
        return True

    def clear(self) -> None:
        """Forget what was written so far."""
        self.lines.clear()
        self.overridden.clear()

    def search(self, pattern: str) -> re.Match[str] | None:
        """Return the last match of `pattern` in what was written since `clear`."""
        matches = list(re.finditer(pattern, "".join(self.lines)))
        return matches[-1] if matches else None

    def buffers(self, kind: str) -> dict[str, int]:
        """Return the bytes of the buffers of `kind` (`model`, `KV`, `compute`, …) by the name of their buffer type."""
        sizes: dict[str, int] = {}
        for name, mib in re.findall(rf"(\S+)\s+{kind} buffer size =\s+([0-9.]+) MiB", "".join(self.lines)):
            sizes[name] = sizes.get(name, 0) + round(float(mib) * MIB)
        return sizes

    def layers_offloaded(self) -> int | None:
        """Return how many layers went to devices; None where the log does not say."""
        found = self.search(r"offloaded (\d+)/\d+ layers to GPU")
        return int(found[1]) if found else None

    def cache_types(self) -> tuple[str | None, str | None]:
        """Return type_k and type_v of the KV cache."""
        found = self.search(r"K \((\w+)\):.*V \((\w+)\):")
        return (found[1], found[2]) if found else (None, None)

    def flash_attn(self) -> str | None:
        """Return whether flash attention is on or off: the last line that settles it wins."""
        if self.search(r"forcing off|Flash Attention not supported, set to disabled"):
            return "off"
        if self.search(r"enabling flash_attn|Flash Attention enabled"):
            return "on"
        found = self.search(r"flash_attn\s+= (\w+)")
        return {"enabled": "on", "disabled": "off"}.get(found[1]) if found else None

    def load_mode(self) -> str | None:
        """Return how the file was read, as llama.cpp names it."""
        found = self.search(r"load_mode = ([\w+]+)")
        return found[1] if found else None

    def devices_used(self) -> list[str]:
        """Return the names of the devices that layers may lie on, in order."""
        return list(dict.fromkeys(re.findall(r"using device (\S+) \(", "".join(self.lines))))

    def devices_named(self) -> list[str]:
        """Return them with what tells them apart, such as `CUDA0 (NVIDIA GeForce RTX 5080) (0000:01:00.0)`.

        The number alone names another GPU as soon as one is added, and in each program another.
        """
        text = "".join(self.lines)
        named = re.findall(r"using device (\S+ \(.+\)) - \d+ MiB free", text)
        return list(dict.fromkeys(name.removesuffix(" (unknown id)") for name in named))

    def mlock_refused(self) -> bool:
        """Return whether the system did not let llama.cpp lock all of the weights in memory."""
        return self.search(r"failed to mlock") is not None

    def notes(self) -> tuple[str, ...]:
        """Return in words what was done otherwise than asked though nothing failed."""
        return reasons.notes("".join(self.lines))

    def last_error(self) -> str:
        """Return what the log says went wrong, as one line."""
        return reasons.reason("".join(self.lines)) or "it gave no reason"
