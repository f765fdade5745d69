"""The types of numbers in GGUF files, and any of them as float32.

The usual ones are unpacked by `clearhead.ops.blocks`; the rare ones, which need large tables, are left to the `gguf`
package, a chunk at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.ops.blocks import UNPACK


@dataclass(frozen=True)
class GGMLType:
    """A type of GGUF: so many weights a block, in so many bytes; `dtype` where it is a plain one of torch's."""

    name: str
    block: int
    nbytes: int
    dtype: torch.dtype | None = None


TYPES = {
    0: GGMLType("F32", 1, 4, torch.float32),
    1: GGMLType("F16", 1, 2, torch.float16),
    2: GGMLType("Q4_0", 32, 18),
    3: GGMLType("Q4_1", 32, 20),
    6: GGMLType("Q5_0", 32, 22),
    7: GGMLType("Q5_1", 32, 24),
    8: GGMLType("Q8_0", 32, 34),
    10: GGMLType("Q2_K", 256, 84),
    11: GGMLType("Q3_K", 256, 110),
    12: GGMLType("Q4_K", 256, 144),
    13: GGMLType("Q5_K", 256, 176),
    14: GGMLType("Q6_K", 256, 210),
    16: GGMLType("IQ2_XXS", 256, 66),
    17: GGMLType("IQ2_XS", 256, 74),
    18: GGMLType("IQ3_XXS", 256, 98),
    19: GGMLType("IQ1_S", 256, 50),
    20: GGMLType("IQ4_NL", 32, 18),
    21: GGMLType("IQ3_S", 256, 110),
    22: GGMLType("IQ2_S", 256, 82),
    23: GGMLType("IQ4_XS", 256, 136),
    24: GGMLType("I8", 1, 1, torch.int8),
    25: GGMLType("I16", 1, 2, torch.int16),
    26: GGMLType("I32", 1, 4, torch.int32),
    27: GGMLType("I64", 1, 8, torch.int64),
    28: GGMLType("F64", 1, 8, torch.float64),
    29: GGMLType("IQ1_M", 256, 56),
    30: GGMLType("BF16", 1, 2, torch.bfloat16),
    34: GGMLType("TQ1_0", 256, 54),
    35: GGMLType("TQ2_0", 256, 66),
    39: GGMLType("MXFP4", 32, 17),
    40: GGMLType("NVFP4", 64, 36),
}
"""GGML's numbers of the types that can be read. Quantisations of activations (Q8_1, Q8_K) are not among them."""

BY_NAME = {kind.name: kind for kind in TYPES.values()}


def dequantise(raw_RC: Tensor, kind: str, n_columns: int) -> Tensor:
    """Rows of packed bytes (uint8, R x bytes a row) as float32 (R x `n_columns`). `kind` is a name in TYPES."""
    if kind not in BY_NAME:
        raise ClearheadError(f"{kind} is not a GGUF type that can be dequantised: {', '.join(BY_NAME)}")
    size = BY_NAME[kind]
    rows = raw_RC.shape[0]
    if n_columns % size.block or raw_RC.shape[1] != n_columns // size.block * size.nbytes:
        raise ClearheadError(f"{raw_RC.shape[1]} bytes are not a row of {n_columns} weights in {kind}")
    if size.dtype is not None:
        return raw_RC.contiguous().view(size.dtype).float()
    blocks = raw_RC.reshape(-1, size.nbytes)
    unpack = UNPACK.get(kind)
    out = _by_package(blocks, kind) if unpack is None else unpack(blocks)
    return out.view(rows, n_columns)


def _by_package(blocks: Tensor, kind: str) -> Tensor:
    """The rare types, by the `gguf` package: it takes a while to import, so only when it is needed."""
    from gguf import GGMLQuantizationType, quants

    values = quants.dequantize(blocks.contiguous().numpy(), GGMLQuantizationType[kind])
    return torch.from_numpy(values).float()
