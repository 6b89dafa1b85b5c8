"""Parameters by the name of their field, whichever release of llama-cpp-python has them (stdlib only)."""

from typing import Any

from worker.seam import EngineError


def set_field(params: Any, name: str, value: Any, needed: bool = True) -> None:
    """Set a field; raises EngineError where the build lacks it and it is `needed` (asked for beyond the default)."""
    if hasattr(params, name):
        setattr(params, name, value)
    elif needed:
        raise EngineError(
            f"this build of llama-cpp-python has no {name}; leave the setting out or choose another build"
        )


def mismatch(what: str) -> str:
    """Return the sentence that refuses a binding whose structures are not the library's."""
    return f"llama-cpp-python and its llama.cpp library do not belong together ({what}): install both anew, as a pair"
