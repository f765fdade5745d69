"""Operations of a pass from the config, against torch's counter and against values worked by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.config import AttentionConfig, ExpertsConfig, FeedForwardConfig, MambaConfig, MaskConfig
from clearhead.costs import counts
from clearhead.costs.counter import count_flops
from clearhead.costs.flops import Run, Work, reach, seen, sequential_steps, work
from clearhead.errors import ClearheadError
from clearhead.nn import experts as experts_module
from clearhead.nn.attention import mask_from
from clearhead.ops.experts import experts_loop
from clearhead.ops.masks import BoundMask, Positions
from tests import tiny
from tests.costs.models import ORDINARY, asked, config_of, every_family, model_of, outputs, published, read_on, sizes
from tests.costs.small import ATTENTION, small

Case = tuple[str, str]


@pytest.fixture(autouse=True)
def loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts one after another: torch's counter knows nothing of the products that the fast form is made of."""
    monkeypatch.setattr(experts_module, "experts_grouped", experts_loop)


@every_family
def test_a_pass_is_what_torch_counts(case: Case) -> None:
    model, inputs = model_of(case), asked(case)
    with torch.no_grad():
        counted = count_flops(lambda: outputs(model, inputs, backend="reference"))
    assert counts(config_of(case)).flops(**sizes(inputs)).total == counted


@every_family
def test_a_step_of_training_is_what_torch_counts(case: Case) -> None:
    model, inputs = model_of(case), asked(case)
    counted = count_flops(lambda: sum(y.sum() for y in outputs(model, inputs, backend="reference")).backward())
    assert counts(config_of(case)).flops(**sizes(inputs), training=True).total == counted


DECODERS = [case for case in tiny.cases("decoder", "seq2seq", "audio") if case in ORDINARY]


@pytest.mark.parametrize("case", DECODERS, ids="-".join)
def test_reading_on_from_a_state_is_what_torch_counts(case: Case) -> None:
    """Windows have slid, latents are absorbed or not, scans take one step, and a source is not read again."""
    model, inputs = model_of(case), asked(case)
    told, state = counts(config_of(case)), model.new_state()
    with torch.no_grad():
        for start, stop in pairwise((0, 13, 14, 16, 17, 20)):
            read = partial(read_on, model, inputs, state, start, stop, backend="reference", last=1)
            counted = count_flops(read)
            size = sizes(inputs) | {"tokens": stop - start}
            assert told.flops(**size, context=start, last=1).total == counted, f"{start} to {stop}"


@pytest.mark.parametrize("case", [case for case in DECODERS if case[0] in ("mamba", "mamba2", "bamba")], ids="-".join)
@pytest.mark.parametrize("n_tokens", [1, 64, 150])
@pytest.mark.parametrize("training", [False, True])
def test_scans_of_several_chunks(case: Case, n_tokens: int, training: bool) -> None:
    model, tokens = model_of(case), torch.randint(3, 60, (2, n_tokens))
    with torch.set_grad_enabled(training):
        counted = count_flops(lambda: _step(model, tokens, training))
    config = replace(config_of(case), context=None)
    assert counts(config).flops(2, n_tokens, training=training).total == counted


def _step(model: Any, tokens: Tensor, training: bool) -> None:
    out = model(tokens, backend="reference")
    if training:
        out.sum().backward()


def test_a_pass_worked_by_hand() -> None:
    """3 tokens. Each of 2 layers: 2 x 3 x 192 with attention's matrices, 2 x 3 x 384 in the feed-forward; every query
    with every key, 2 heads x 9 pairs x 2 x (4 + 4) = 288, of which the mask leaves 6 pairs, 192. The head: 2 x 3 x 8 x
    10 = 480. In all 2 x 1,152 + 2 x 2,304 + 2 x 288 + 480 = 7,968; 2 N D is 2 x 1,272 x 3.
    """
    found = counts(small()).flops(1, 3)
    assert found.parts == {
        "attention": Work(linear=2304, quadratic=576, needed=384),
        "feed-forward": Work(linear=4608),
        "heads": Work(linear=480),
    }
    assert (found.linear, found.quadratic, found.total, found.needed) == (7392, 576, 7968, 7776)
    assert found.rule == 2 * 1272 * 3


def test_training_worked_by_hand() -> None:
    """Each product again for each of its two factors: three times the pass, and 6 N D."""
    once, step = counts(small()).flops(2, 3), counts(small()).flops(2, 3, training=True)
    assert step.total == 3 * once.total == 3 * 2 * 7968
    assert step.needed == 3 * once.needed
    assert step.rule == 6 * 1272 * 6


def test_a_decoded_token_worked_by_hand() -> None:
    """One token after 3: a third of the above but for attention, 2 layers x 2 heads x 4 pairs x 2 x (4 + 4) = 256."""
    found = counts(small()).flops(1, 1, context=3)
    assert (found.linear, found.quadratic, found.needed) == (2464, 256, 2464 + 256)


def test_prefill_makes_logits_of_the_last_token() -> None:
    told = counts(small())
    assert told.flops(1, 3).total - told.flops(1, 3, last=1).total == 320
    assert "heads" not in told.flops(1, 3, last=0).parts


def test_reading_at_once_or_bit_by_bit_is_as_much_work() -> None:
    """Every pair of a query and a key that the mask leaves is met once, whatever the cut."""
    told = counts(small(mixer=replace(ATTENTION, mask=MaskConfig(window=5))))
    whole = told.flops(1, 20)
    parts = [told.flops(1, stop - start, context=start) for start, stop in pairwise((0, 3, 4, 11, 20))]
    assert sum(part.needed for part in parts) == whole.needed
    assert sum(part.linear for part in parts) == whole.linear


@pytest.mark.parametrize("kind", ["causal", "full"])
@pytest.mark.parametrize("window", [None, 1, 3, 9])
@pytest.mark.parametrize(("n_tokens", "context"), [(1, 0), (7, 0), (7, 2), (1, 6), (2, 20)])
def test_what_masks_leave(kind: Any, window: int | None, n_tokens: int, context: int) -> None:
    """Counted pair by pair."""
    if kind == "full" and context:
        return
    mask = MaskConfig(kind=kind, window=window)
    queries, keys = Positions(span=(context, context + n_tokens)), Positions(span=(0, context + n_tokens))
    allowed = BoundMask(mask_from(mask), queries, keys, torch.device("cpu")).dense.expand(1, 1, n_tokens, len(keys))
    run = Run(batch=1, tokens=n_tokens, context=context)
    assert seen(mask, run) == int(allowed.sum())
    if kind == "causal":
        assert reach(mask, run) == int(allowed.any(dim=-2).sum())


def test_experts_are_worked_on_by_the_chosen() -> None:
    """3 tokens, a router of 8 x 4 and 2 of 4 experts of 3 matrices of 8 x 5, in 2 layers: 2 x 2 x 3 x 32 = 384 and 2 x
    2 x 3 x 2 x 120 = 2,880.
    """
    op = ExpertsConfig(n_experts=4, n_chosen=2, expert=FeedForwardConfig(d_ff=5))
    parts = counts(small(ffn=op)).flops(1, 3).parts
    assert (parts["router"].linear, parts["experts"].linear) == (384, 2880)


def test_a_scan_worked_by_hand() -> None:
    """16 channels, state 3, rank 2; 4 tokens are 2 chunks of 2. A layer: 2 x 4 x (8 x 32 + 16 x 8 + 2 x 16 + 16 x 8) =
    4,352 with matrices, and 2 x 4 x 3 x 16 = 384 reading the state. 5 tokens are scanned as 8.
    """
    told = counts(small(mixer=MambaConfig(d_inner=16, d_state=3, dt_rank=2), ffn=None))
    assert told.flops(1, 4).parts["scan"] == Work(2 * (4352 + 384))
    assert told.flops(1, 5).parts["scan"] == Work(2 * (5440 + 768))


def test_latents_are_written_out_or_not() -> None:
    """DeepSeek-V3 decodes in the latent's space: a token after 4,095 takes 128 heads x 4,096 x 2 x (576 + 576) a layer
    and, with no more than 4,096 tokens to be written out, more than 100 times less with W_UK and W_UV than without.
    """
    config = published("deepseek-v3")
    found = counts(config).flops(1, 1, context=4095)
    assert found.quadratic == 61 * 128 * 4096 * 2 * (576 + 576)
    assert found.linear < 2 * 38e9 < 61 * 2 * 4096 * 512 * 128 * 256


def test_the_rule_of_thumb() -> None:
    """6 N D of Llama 3 405B on 15.6 trillion tokens is 3.80e25 (Dubey 2024, section 3.2.1: 3.8e25). At 8,192 tokens a
    step takes some percent more, for what grows with the square, and less, for the table of words.
    """
    found = counts(published("llama3-405b")).flops(1, 8192, training=True)
    assert found.rule / 8192 * 15.6e12 == pytest.approx(3.8e25, rel=1e-3)
    assert 1.0 < found.needed / found.rule < 1.05


def test_eight_heads_cost_what_one_wide_one_costs() -> None:
    """S30: 8 heads of 64 in 512 take as many operations as one of 512, and as many weights."""
    run = Run(batch=1, tokens=100)
    of_eight, of_one = (
        [sum((w for _, w in work(AttentionConfig(n_heads=n, n_kv_heads=n, d_head=512 // n), 512, run)), Work())]
        for n in (8, 1)
    )
    assert of_eight == of_one
    assert of_one[0].quadratic == 2 * 100 * 100 * (512 + 512)


def test_attention_waits_for_nothing_and_a_recurrence_for_every_token() -> None:
    """S55: a constant number of steps for a layer of attention, n for a recurrence (Vaswani 2017, table 1)."""
    scan = MambaConfig(d_inner=16, d_state=3, dt_rank=2)
    for n in (1, 100, 100_000):
        assert sequential_steps(ATTENTION, n) == 1
        assert sequential_steps(scan, n, one_by_one=True) == n
    # In 32 chunks of 32, each gone through twice side by side, and then chunk after chunk.
    assert sequential_steps(scan, 1024) == 32 + 32 + 32


def test_one_head_computes_the_square_of_the_length() -> None:
    """S58: n^2 numbers, and so four times as many operations of twice the length."""
    config = small(mixer=AttentionConfig(n_heads=1, n_kv_heads=1, d_head=4), context=None)
    assert counts(config).flops(1, 2000).quadratic == 4 * counts(config).flops(1, 1000).quadratic
    assert counts(config).attention_traffic(1000, 1024, bytes_per_number=1).scores == 1000**2


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"batch": 0, "tokens": 1}, "batch is 0; it must be a whole number, 1 or more"),
        ({"batch": 1, "tokens": -2}, "tokens is -2"),
        ({"batch": 1, "tokens": 1.5}, "tokens is 1.5"),
        ({"batch": True, "tokens": 1}, "batch is True"),
        ({"batch": 1, "tokens": None}, "say how many tokens"),
        ({"batch": 1, "tokens": 1, "context": -1}, "context is -1"),
        ({"batch": 1, "tokens": 1, "last": -1}, "last is -1"),
        ({"batch": 1, "tokens": 60, "context": 5}, "65 tokens, and this model was made for 64"),
        ({"batch": 1, "tokens": 6, "context": 5, "training": True}, "training reads whole texts"),
        ({"batch": 1, "tokens": 6, "source": 5}, "no encoder beside a decoder"),
    ],
)
def test_bad_sizes(sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(ClearheadError, match=words):
        counts(small()).flops(**sizes)


def test_bad_sizes_of_other_models() -> None:
    with pytest.raises(ClearheadError, match="always becomes 197 tokens"):
        counts(published("vit-b-16")).flops(1, 8192)
    with pytest.raises(ClearheadError, match="513 tokens, and this model was made for 512"):
        counts(published("roberta-base")).flops(1, 513)
    with pytest.raises(ClearheadError, match="sees both ways"):
        counts(published("bert-base")).flops(1, 1, context=3)
    with pytest.raises(ClearheadError, match="source is 3000, and what this model reads always becomes 1500"):
        counts(published("whisper-tiny")).flops(1, 1, source=3000)
