"""Every quantisation against the `gguf` package's own numpy code, bit for bit, on random blocks."""

from __future__ import annotations

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from clearhead.checkpoints.gguf_quants import BY_NAME, TYPES, dequantise
from clearhead.errors import ClearheadError

QUANTISED = [kind.name for kind in TYPES.values() if kind.dtype is None]

HALVES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "IQ1_M": (),
    "MXFP4": (),
    "NVFP4": (),
}
"""Where the half-precision scales of a block are, where that is not at its start."""


def random_rows(kind: str, rows: int, blocks: int) -> torch.Tensor:
    """Random bytes, with scales that are finite, so that there is no NaN whose sign could differ."""
    size = BY_NAME[kind].nbytes
    raw = torch.randint(0, 256, (rows, blocks, size), dtype=torch.uint8)
    for at in HALVES.get(kind, (0,)):
        raw[..., at : at + 2] = torch.randn(rows, blocks, 1).half().view(torch.uint8)
    if kind == "IQ1_M":  # the four high bits of four scales make up the half: keep its exponent below the largest
        raw[..., 55] &= 0b00111111
    return raw.flatten(1)


@pytest.mark.parametrize("kind", QUANTISED)
def test_bits_are_those_of_the_package(kind: str) -> None:
    raw = random_rows(kind, 5, 6)
    columns = 6 * BY_NAME[kind].block
    expected = torch.from_numpy(quants.dequantize(raw.numpy(), GGMLQuantizationType[kind])).float()
    assert expected.isfinite().all()
    found = dequantise(raw, kind, columns)
    assert found.shape == (5, columns)
    assert found.dtype == torch.float32
    assert torch.equal(found.view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_plain_types_are_widened(kind: str) -> None:
    values = torch.randn(3, 32).to(BY_NAME[kind].dtype)
    assert torch.equal(dequantise(values.view(torch.uint8), kind, 32), values.float())


def test_every_type_the_package_dequantises_is_known_with_its_sizes() -> None:
    ours = {number: (kind.name, kind.block, kind.nbytes) for number, kind in TYPES.items()}
    theirs = {int(t): (t.name, *sizes) for t, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert ours.items() <= theirs.items()
    # What is left are sums and activations, and a type that the package can't dequantise either.
    assert {theirs[number][0] for number in theirs.keys() - ours.keys()} <= {"Q8_1", "Q8_K", "Q1_0"}


def test_a_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ClearheadError, match="33 bytes are not a row of 32 weights in Q8_0"):
        dequantise(torch.zeros(1, 33, dtype=torch.uint8), "Q8_0", 32)
    with pytest.raises(ClearheadError, match="Q9_9 is not a GGUF type"):
        dequantise(torch.zeros(1, 33, dtype=torch.uint8), "Q9_9", 32)
