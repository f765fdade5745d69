"""Bytes that decoding keeps, against what a real pass holds and against values worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from clearhead.config import AttentionConfig, MambaConfig, MaskConfig, TransformerConfig
from clearhead.costs import counts
from clearhead.costs.state import StateBytes
from clearhead.errors import ClearheadError
from tests import tiny
from tests.costs.models import EVERY, asked, config_of, model_of, published, read_on, sizes
from tests.costs.small import ATTENTION, small

Case = tuple[str, str]
DECODERS = [
    case
    for case in EVERY
    if tiny.record_of(*getattr(case, "values", [case])[0]).kind in ("decoder", "seq2seq", "audio")
]


@pytest.mark.parametrize("case", DECODERS, ids=lambda case: "-".join(case))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_real_pass_holds_as_much(case: Case, dtype: torch.dtype) -> None:
    """After 13 tokens and after all, when windows have slid and the source is long read."""
    config, model, inputs = config_of(case), model_of(case).to(dtype), asked(case)
    assert isinstance(config, TransformerConfig)
    size, state, told = sizes(inputs), model.new_state(), counts(config)
    with torch.no_grad():
        for start, stop in ((0, 13), (13, size["tokens"])):
            read_on(model, inputs, state, start, stop)
            found = told.state(size["batch"], stop, dtype.itemsize, source=size.get("source"))
            assert found.total == state.nbytes


def test_llama_3_70b() -> None:
    """S59: 80 layers, 64 query heads, 8 key-value heads of 128: 2 x 8 x 128 numbers a layer, of 2 bytes, in 80 layers,
    are 327,680 bytes a token, 2.5 GiB of 8,192 and 40 GiB of 131,072 tokens; 64 heads would keep 8 x as much.
    """
    config = published("llama3-70b")
    assert isinstance(config, TransformerConfig)
    op = config.stack.blocks[0].mixer.op
    assert isinstance(op, AttentionConfig)
    assert (len(config.stack.blocks), op.n_heads, op.n_kv_heads, op.d_head) == (80, 64, 8, 128)
    told = counts(config)
    for n_tokens, total in ((1, 327_680), (8_192, 2.5 * 2**30), (131_072, 40 * 2**30)):
        found = told.state(1, n_tokens)
        assert (found.total, found.per_token, found.growth) == (total, 327_680, 327_680)
        assert found.multi_head_total == 8 * total
        assert found.kinds == {"grouped": total}
    assert counts(published("llama3-8b")).state(1, 1).per_token == 131_072
    assert counts(published("llama3-405b")).state(1, 1).per_token == 516_096


def test_full_and_grouped_worked_by_hand() -> None:
    """2 layers x (keys and values) x 1 head of 4 x 2 bytes are 32 a token; 2 heads would take 64. 3 texts of 5: 480."""
    found = counts(small()).state(3, 5)
    assert found == StateBytes(total=480, per_token=32, growth=32, kinds={"grouped": 480}, multi_head_total=960)
    full = counts(small(mixer=AttentionConfig(n_heads=2, n_kv_heads=2, d_head=4))).state(3, 5)
    assert (full.total, full.kinds) == (960, {"full": 960})


def test_a_window_is_full_one_day() -> None:
    """Of 5 tokens a window of 4 keeps 4: 2 layers x 2 x 4 numbers x 4 tokens x 2 bytes; a fifth adds nothing."""
    told = counts(small(mixer=replace(ATTENTION, mask=MaskConfig(window=4))))
    assert [told.state(1, n).growth for n in (0, 3, 4)] == [32, 32, 0]
    assert told.state(1, 5).kinds == {"window": 128}
    assert told.state(1, 5).multi_head_total == 2 * 64 * 5 // 2


def test_latents() -> None:
    """DeepSeek-V3 keeps 512 + 64 numbers a token and layer (DeepSeek-AI 2024, section 2.1.1), in 61 layers, where 128
    heads of 192 and 128 numbers would be 40,960.
    """
    found = counts(published("deepseek-v3")).state(1, 1)
    assert found.kinds == {"latent": 61 * 576 * 2}
    assert found.multi_head_total == 61 * 128 * (192 + 128) * 2


def test_scans_have_one_size() -> None:
    """A layer of 16 channels with a state of 3 keeps 48 numbers in float32 and 3 inputs of its convolution in 2 bytes:
    192 + 96 bytes. Two vectors of the stream's 8 would be 32 bytes a token.
    """
    told = counts(small(mixer=MambaConfig(d_inner=16, d_state=3, dt_rank=2)))
    assert [told.state(1, n).total for n in (0, 1, 64)] == [0, 576, 576]
    assert told.state(1, 64) == StateBytes(
        total=576, per_token=0, growth=0, kinds={"scan": 576}, multi_head_total=2 * 32 * 64
    )


def test_a_source_is_kept_once() -> None:
    """Whisper tiny: 4 layers x 2 x 384 numbers x 2 bytes for each of 1,500 tokens of sound, and for each of text."""
    found = counts(published("whisper-tiny")).state(2, 10)
    assert found.kinds == {"full": 2 * 10 * 6144, "cross": 2 * 1500 * 6144}
    assert found.per_token == 6144


def test_the_state_grows_with_the_text_and_outweighs_the_weights() -> None:
    """S58: linear in its length; of 32 texts of 32,768 tokens, Llama 3 70B keeps 320 GiB beside 131 GiB of weights."""
    told = counts(published("llama3-70b"))
    assert told.state(1, 65_536).total == 2 * told.state(1, 32_768).total
    assert told.state(32, 32_768).total == 320 * 2**30 > 2 * told.parameters.total


def test_what_sees_both_ways_keeps_nothing() -> None:
    assert counts(published("bert-base")).state(1, 100) == StateBytes(0, 0, 0, {}, 0)
    assert counts(published("clip-vit-b-32")).state(1, 10).total == 0


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"batch": 0, "context": 1}, "batch is 0"),
        ({"batch": 1, "context": -1}, "context is -1; it must be a whole number, 0 or more"),
        ({"batch": 1, "context": 65}, "65 tokens, and this model was made for 64"),
        ({"batch": 1, "context": 1, "bytes_per_number": 0}, "bytes_per_number is 0"),
        ({"batch": 1, "context": 1, "source": 3}, "no encoder beside a decoder"),
    ],
)
def test_bad_sizes(sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(ClearheadError, match=words):
        counts(small()).state(**sizes)
