"""Choosing from a shortlist gives what choosing from all scores gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from clearhead.config import HeadsConfig, TokenHeadConfig
from clearhead.generation import generate
from clearhead.generation import shortlist as module
from clearhead.generation.options import RowConfig, RunConfig
from clearhead.generation.rows import Row
from clearhead.generation.shortlist import Shortlist
from clearhead.model.transformer import Transformer
from clearhead.taps import Recorder
from tests.generation.scripted import config

VOCAB = 3000
HEADS: list[dict[str, Any]] = [
    {},
    {"tie": True},
    {"bias": True},
    {"softcap": 5.0},
    {"scale": 0.25},
    {"scale": 0.25, "bias": True, "softcap": 20.0},
]


def model_with(dtype: torch.dtype = torch.float32, seed: int = 0, **head: Any) -> Transformer:
    torch.manual_seed(seed)
    whole = config(vocab_size=VOCAB, context=None)
    made = Transformer(replace(whole, heads=HeadsConfig(tokens=TokenHeadConfig(**{"tie": False, **head})))).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.3 if parameter.ndim > 1 else 0.5)
        made.unembedding.mul_(torch.rand(VOCAB, 1) + 0.2)
    return made.to(dtype)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Shortlist]:
    """The shortlists of the calls of a test."""
    made: list[Shortlist] = []
    init = Shortlist.__init__

    def noted(self: Shortlist, *args: Any) -> None:
        init(self, *args)
        made.append(self)

    monkeypatch.setattr(Shortlist, "__init__", noted)
    monkeypatch.setattr(module, "SHARE", 0.5)
    for name in ("GREEDY_FROM", "DRAWN_FROM", "LEAST"):
        monkeypatch.setattr(module, name, 0)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize(
    "how", [{}, {"top_k": 20, "seed": 1}, {"top_k": 5, "top_p": 0.8, "temperature": 0.7, "seed": 2}]
)
def test_the_same_tokens(head: dict[str, Any], how: dict[str, Any], dtype: torch.dtype, used: list[Shortlist]) -> None:
    model = model_with(dtype, **head)
    prompts = [[5, 6, 7], [9], [3, 1, 4, 1, 5]]
    plain = [result.tokens for result in generate(model, prompts, max_new_tokens=12, **how)]
    assert [result.tokens for result in generate(model, prompts, max_new_tokens=12, shortlist=True, **how)] == plain
    assert len(used) == 1 and used[0].asked > 0
    if dtype == torch.float32 and not how:
        assert used[0].doubted <= used[0].asked // 4 and max(used[0].listed) < VOCAB / 2


def test_min_p(used: list[Shortlist]) -> None:
    model = model_with()
    how: dict[str, Any] = {"min_p": 0.1, "seed": 3, "max_new_tokens": 15, "temperature": 1.5}
    assert generate(model, [5, 6], shortlist=True, **how).tokens == generate(model, [5, 6], **how).tokens
    assert used[0].asked > used[0].doubted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_ties_and_what_is_nearly_one(dtype: torch.dtype, used: list[Shortlist]) -> None:
    """Of equal rows the first is chosen; of those an ulp apart, the one that the head's own arithmetic prefers."""
    model = model_with(dtype)
    with torch.no_grad():
        head = model.unembedding
        for copy in range(1, 4):
            head[copy * 700 : (copy + 1) * 700] = head[:700]
        for place in range(0, 700, 3):
            head[2100 + place] = torch.nextafter(head[place], head.new_tensor(9.0).expand_as(head[place]))
    plain = generate(model, [1, 2, 3], max_new_tokens=24).tokens
    assert generate(model, [1, 2, 3], max_new_tokens=24, shortlist=True).tokens == plain
    assert used[0].asked > 0


def test_what_needs_all_scores_gets_them(used: list[Shortlist]) -> None:
    model = model_with()
    for how in (
        {"logprobs": True},
        {"top_logprobs": 2},
        {"repetition_penalty": 1.3},
        {"presence_penalty": 0.5},
        {"logit_bias": {5: -3.0}},
        {"temperature": 1.0, "seed": 1},
        {"top_p": 0.9, "seed": 1},
        {"n_beams": 2},
        {"top_k": 2000, "seed": 1},
    ):
        plain, short = (generate(model, [5, 6, 7], max_new_tokens=6, shortlist=on, **how) for on in (False, True))
        assert (plain.tokens, plain.logprobs) == (short.tokens, short.logprobs)
    recorder = Recorder(["logits", "layers.0.mixer.z"])
    generate(model, [5, 6, 7], max_new_tokens=3, shortlist=True, taps=recorder)
    assert not used


def test_a_head_that_changes_is_sketched_anew(used: list[Shortlist]) -> None:
    model = model_with()
    first = generate(model, [5, 6, 7], max_new_tokens=8, shortlist=True).tokens
    with torch.no_grad():
        model.unembedding.copy_(model.unembedding.flip(0))
    assert generate(model, [5, 6, 7], max_new_tokens=8, shortlist=True).tokens != first
    plain = generate(model, [5, 6, 7], max_new_tokens=8).tokens
    assert generate(model, [5, 6, 7], max_new_tokens=8, shortlist=True).tokens == plain


def test_damaged_weights_are_told_as_ever(used: list[Shortlist]) -> None:
    from clearhead.errors import ClearheadError

    model = model_with()
    with torch.no_grad():
        model.unembedding[5] = float("nan")
    with pytest.raises(ClearheadError, match="NaN"):
        generate(model, [5, 6, 7], max_new_tokens=8, shortlist=True)


def test_it_gives_up_where_it_is_of_no_use(monkeypatch: pytest.MonkeyPatch, used: list[Shortlist]) -> None:
    monkeypatch.setattr(module, "SHARE", 0.0)
    model = model_with()
    plain = generate(model, [5, 6, 7], max_new_tokens=30).tokens
    assert generate(model, [5, 6, 7], max_new_tokens=30, shortlist=True).tokens == plain
    assert used[0].asked <= module.PATIENCE + module.MOST_ROWS


def test_it_is_used_only_where_it_pays() -> None:
    model = model_with()
    row = Row(RowConfig(), [1])
    assert not Shortlist.serves(model, [row], RunConfig())  # a head so small


def test_quantised_heads(used: list[Shortlist]) -> None:
    from clearhead.ops.quantised import QuantisedTensor

    model = model_with(tie=True)
    raw_VC = torch.randint(0, 256, (VOCAB, 34), dtype=torch.uint8)
    raw_VC[:, :2] = torch.full((VOCAB, 1), 0.004, dtype=torch.float16).view(torch.uint8)
    assert model.embed.tokens is not None
    model.embed.tokens.weight = torch.nn.Parameter(QuantisedTensor(raw_VC, "Q8_0"), requires_grad=False)
    for how in ({}, {"top_k": 9, "seed": 2}):
        plain = generate(model, [1, 2, 3], max_new_tokens=20, **how).tokens
        assert generate(model, [1, 2, 3], max_new_tokens=20, shortlist=True, **how).tokens == plain
    assert len(used) == 2 and used[0].asked > used[0].doubted
