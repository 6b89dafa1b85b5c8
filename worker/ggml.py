"""The tensor types of ggml: how many weights a block holds and how many bytes it takes (stdlib only).

Source: `enum ggml_type` in ggml.h and the block structures in ggml-common.h of llama.cpp.
"""

from dataclasses import dataclass

from schema.errors import ModelError


@dataclass(frozen=True, slots=True)
class TensorType:
    """One ggml type: its code in a file, its name, weights and bytes per block (0 bytes where it is not known here)."""

    code: int
    name: str
    block_weights: int
    block_bytes: int

    @property
    def is_unknown(self) -> bool:
        """Whether this is the type of another llama.cpp: a fork's, or one of the past."""
        return self.block_bytes == 0

    def row_bytes(self, width: int) -> int:
        """Return the bytes of one row of `width` weights; ModelError where no whole number of blocks fits."""
        if width % self.block_weights:
            raise ModelError(
                f"A row of {width} weights cannot be stored as {self.name}, whose blocks hold {self.block_weights}."
            )
        return width // self.block_weights * self.block_bytes


_TABLE = (
    TensorType(0, "F32", 1, 4),
    TensorType(1, "F16", 1, 2),
    TensorType(2, "Q4_0", 32, 18),
    TensorType(3, "Q4_1", 32, 20),
    TensorType(6, "Q5_0", 32, 22),
    TensorType(7, "Q5_1", 32, 24),
    TensorType(8, "Q8_0", 32, 34),
    TensorType(9, "Q8_1", 32, 36),
    TensorType(10, "Q2_K", 256, 84),
    TensorType(11, "Q3_K", 256, 110),
    TensorType(12, "Q4_K", 256, 144),
    TensorType(13, "Q5_K", 256, 176),
    TensorType(14, "Q6_K", 256, 210),
    TensorType(15, "Q8_K", 256, 292),
    TensorType(16, "IQ2_XXS", 256, 66),
    TensorType(17, "IQ2_XS", 256, 74),
    TensorType(18, "IQ3_XXS", 256, 98),
    TensorType(19, "IQ1_S", 256, 50),
    TensorType(20, "IQ4_NL", 32, 18),
    TensorType(21, "IQ3_S", 256, 110),
    TensorType(22, "IQ2_S", 256, 82),
    TensorType(23, "IQ4_XS", 256, 136),
    TensorType(24, "I8", 1, 1),
    TensorType(25, "I16", 1, 2),
    TensorType(26, "I32", 1, 4),
    TensorType(27, "I64", 1, 8),
    TensorType(28, "F64", 1, 8),
    TensorType(29, "IQ1_M", 256, 56),
    TensorType(30, "BF16", 1, 2),
    TensorType(34, "TQ1_0", 256, 54),
    TensorType(35, "TQ2_0", 256, 66),
    TensorType(39, "MXFP4", 32, 17),
    TensorType(40, "NVFP4", 64, 36),
    TensorType(41, "Q1_0", 128, 18),
    TensorType(42, "Q2_0", 64, 18),
)

BY_CODE = {entry.code: entry for entry in _TABLE}
BY_NAME = {entry.name: entry for entry in _TABLE}

REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Code of a type that older files have and llama.cpp no longer knows -> its name."""


def unknown_type(code: int) -> TensorType:
    """Return a stand-in for a type that is not in the table: it has a name, and blocks of no size."""
    return TensorType(code, REMOVED.get(code, f"type{code}"), 1, 0)
