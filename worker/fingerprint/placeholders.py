"""What firmware and disk images hold where a name or a number should stand."""

import re

_WORDS = re.compile(
    r"default( string)?|to be filled( by (o\.?e\.?m\.?)?)?|none|null|nil|n/?a|not (specified|applicable|available|"
    r"present|settable|provided)|no (asset|serial)( information| number| tag)?|system (product name|manufacturer|"
    r"version|serial number|uuid)|product name|(base )?board (serial number|product name)|serial( number)?|"
    r"asset( |-)?tag|chassis serial number|unknown|uninitialized|undefined|invalid|empty|o\.?e\.?m\.?( string)?|"
    r"0?123456789(0?abcdef)?0?|bsn12345678901234567|type\d.*|sku|test|all series",
    re.I,
)
_UUIDS = frozenset(
    {
        "03000200040005000006000700080009",
        "00020003000400050006000700080009",
        "fefefefefefefefefefefefefefefefe",
        "12345678123456781234567812345678",
        "12345678123456789012345678901234",
    }
)
"""Those that one vendor after another left as they found them; the first two are one, in the two byte orders."""


def is_placeholder(text: str) -> bool:
    """Return whether `text` stands for nothing: empty, a vendor's filler, or one character over and over."""
    bare = re.sub(r"[\s.:_-]", "", text).lower()
    return len(set(bare)) <= 1 or bare in _UUIDS or bool(_WORDS.fullmatch(" ".join(text.split())))
