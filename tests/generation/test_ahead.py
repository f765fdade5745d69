"""Reading ahead changes what is read together, and no text: greedy ones, drawn ones, and where they end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from clearhead.config import DynamicScaling, RotaryConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import decode, generate, stream
from clearhead.generation.ahead import Pace
from clearhead.generation.drafts import Draft, Lookup
from clearhead.generation.options import RowConfig
from clearhead.generation.rows import Row
from clearhead.model.transformer import Transformer
from tests.generation.scripted import Words, config, tiny

KINDS: list[dict[str, Any]] = [{}, {"positions": "learned"}, {"window": 3}, {"window": 1, "seed": 2}]
PROMPT = [5, 6, 7, 8, 5, 6, 7]


class Half:
    """Drafts from what is known to come, a wrong token after every few right ones."""

    def __init__(self, text: list[int], wrong: int, size: int = 50) -> None:
        self.text, self.wrong, self.size, self.drafted = text, wrong, size, 0

    def propose(self, row: Row, most: int) -> Draft:
        draft = self.text[len(row.tokens) : len(row.tokens) + most]
        at = (len(row.tokens) * 7) % self.wrong
        self.drafted += len(draft)
        return Draft([(token + 1) % self.size if i == at else token for i, token in enumerate(draft)])


def drafting(monkeypatch: pytest.MonkeyPatch, text: list[int], wrong: int = 4) -> Half:
    """Let `lookup` draft like this."""
    half = Half(text, wrong)
    monkeypatch.setattr(decode, "Lookup", lambda: half)
    return half


def passes(model: Transformer) -> list[int]:
    """How many tokens each pass reads."""
    seen: list[int] = []
    model.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [1, 2, 4, 1000])
@pytest.mark.parametrize("n_ahead", [1, 3, 8])
def test_greedy_texts_are_the_same(
    kind: dict[str, Any], wrong: int, n_ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(**kind)
    plain = generate(model, PROMPT, max_new_tokens=40).tokens
    half = drafting(monkeypatch, PROMPT + plain, wrong)
    seen = passes(model)
    assert generate(model, PROMPT, max_new_tokens=40, lookup=True, n_ahead=n_ahead).tokens == plain
    assert half.drafted > 0
    if wrong == 1000:
        assert len(seen) <= 2 + 40 / (n_ahead + 1) + 2  # the prompt, and two shorter drafts at first


@pytest.mark.parametrize("kind", KINDS)
def test_a_smaller_model_drafts(kind: dict[str, Any]) -> None:
    model = tiny(**kind)
    plain = generate(model, PROMPT, max_new_tokens=40).tokens
    for draft in (tiny(**kind), tiny(seed=5), tiny(seed=6, window=3)):
        assert generate(model, PROMPT, max_new_tokens=40, draft=draft).tokens == plain
    seen = passes(model)
    generate(model, PROMPT, max_new_tokens=40, draft=tiny(**kind))
    assert len(seen) < 10  # it agrees with itself


def test_what_is_looked_up_is_what_followed() -> None:
    row = Row(RowConfig(), [1, 2, 3, 9, 1, 2, 3, 4, 7, 1, 2])
    lookup = Lookup()
    assert lookup.propose(row, 3).tokens == [3, 4, 7]
    row.take(3)
    assert lookup.propose(row, 2).tokens == [4, 7]
    row.take(9)
    assert lookup.propose(row, 4).tokens == [1, 2, 3, 4]
    row.take(8)
    assert lookup.propose(row, 4).tokens == []


@pytest.mark.parametrize(
    "how",
    [
        {"seed": 4},
        {"seed": 4, "top_k": 5, "temperature": 0.7},
        {"seed": 1, "repetition_penalty": 1.5},
        {"repetition_penalty": 1.5, "presence_penalty": 1.0},
        {"logit_bias": {7: -5.0}, "logprobs": True, "top_logprobs": 2},
    ],
)
def test_every_setting_holds_within_a_draft(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one seed the text is the same too: the draft says only what is read together."""
    model = tiny()
    plain = generate(model, PROMPT, max_new_tokens=30, **how)
    drafting(monkeypatch, PROMPT + plain.tokens)
    ahead = generate(model, PROMPT, max_new_tokens=30, lookup=True, **how)
    assert ahead.tokens == plain.tokens
    if plain.logprobs is not None and ahead.logprobs is not None:
        assert ahead.logprobs == pytest.approx(plain.logprobs, abs=1e-4)
        assert len(ahead.top_logprobs or []) == 30


def test_a_text_ends_within_a_draft_where_it_ends_without(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    whole = generate(model, PROMPT, max_new_tokens=40).tokens
    drafting(monkeypatch, PROMPT + whole, 1000)
    for n in range(12):
        got = generate(model, PROMPT, max_new_tokens=n, lookup=True)
        assert (got.tokens, got.finish_reason) == (whole[:n], "length")
    for place in range(10):
        plain = generate(model, PROMPT, stop_tokens=[whole[place]])
        got = generate(model, PROMPT, stop_tokens=[whole[place]], lookup=True)
        assert (got.tokens, got.finish_reason, got.matched) == (plain.tokens, "stop", plain.matched)
    model.tokenizer = Words([f"w{i} " for i in range(50)])
    for place in range(10):
        stop = f"w{whole[place]} "
        plain, got = (generate(model, PROMPT, stop=stop, lookup=on) for on in (False, True))
        assert (got.tokens, got.text, got.finish_reason) == (plain.tokens, plain.text, plain.finish_reason)
    plain, got = (generate(model, PROMPT, max_text=23, lookup=on) for on in (False, True))
    assert (got.text, got.finish_reason) == (plain.text, "budget")
    assert "".join(stream(model, PROMPT, max_new_tokens=9, lookup=True)) == "".join(f"w{i} " for i in whole[:9])


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_the_window_is_filled_to_the_last_place(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(positions=positions, context=20)
    plain = generate(model, PROMPT, max_new_tokens=40)
    assert plain.finish_reason == "context"
    drafting(monkeypatch, PROMPT + plain.tokens + [1] * 20, 1000)
    got = generate(model, PROMPT, max_new_tokens=40, lookup=True)
    assert (got.tokens, got.finish_reason) == (plain.tokens, "context")
    assert generate(model, PROMPT, max_new_tokens=40, draft=tiny(seed=1, context=14)).tokens == plain.tokens


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_text_goes_on(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(**kind)
    whole = generate(model, PROMPT, max_new_tokens=30).tokens
    for n in (1, 5, 9, 13):
        drafting(monkeypatch, PROMPT + whole, 3)
        first = generate(model, PROMPT, max_new_tokens=n, lookup=True, keep=True)
        assert first.state is not None and first.state.n_read == len(PROMPT) + n - 1
        rest = generate(model, [], max_new_tokens=30 - n, lookup=True, state=first.state)
        assert first.tokens + rest.tokens == whole


def test_drawn_texts_have_the_model_s_probabilities() -> None:
    """Three tokens of five, drawn 1,500 times with a draft of another model, against their probabilities (chi squared;
    the seeds are fixed, so it passes always or never)."""
    model, draft = tiny(vocab_size=5), tiny(seed=1, vocab_size=5)
    for each in (model, draft):
        each.requires_grad_(False)
        each.unembedding.mul_(0.6)
    how: dict[str, Any] = {"temperature": 1.2, "top_k": 4, "stop_tokens": ()}
    expected: dict[tuple[int, ...], float] = {}
    for text in product(range(5), repeat=3):
        logits_TV = model(torch.tensor([[1, 2, *text]]))[0, 1:4] / 1.2
        least_T1 = logits_TV.topk(4, dim=-1).values[:, -1:]
        logps_TV = logits_TV.masked_fill(logits_TV < least_T1, -torch.inf).log_softmax(-1)
        expected[text] = float(logps_TV[range(3), list(text)].sum().exp())
    assert sum(expected.values()) == pytest.approx(1, abs=1e-5)
    n = 1500
    for drafted in (draft, None):
        seen: Counter[tuple[int, ...]] = Counter()
        for seed in range(n if drafted is not None else 300):
            got = generate(model, [1, 2], max_new_tokens=3, seed=seed, draft=drafted, **how)
            seen[tuple(got.tokens)] += 1
        total = sum(seen.values())
        assert not [text for text in seen if expected[text] == 0]
        often = {text: p * total for text, p in expected.items() if p * total >= 5}
        rest = total - sum(often.values()), total - sum(seen[text] for text in often)
        chi = sum((seen[text] - e) ** 2 / e for text, e in often.items()) + (rest[0] - rest[1]) ** 2 / max(rest[0], 1)
        spread = (2 * len(often)) ** 0.5
        assert chi < len(often) + 4 * spread, (chi, len(often))


def test_the_pace_follows_what_is_right() -> None:
    pace = Pace(8)
    pace.told(3, 3)
    assert pace.n == 6
    pace.told(6, 6)
    assert pace.n == 8
    pace.told(8, 1)
    assert pace.n == 2
    pace.told(2, 0)
    pace.told(0, 0)
    assert pace.n == 1


def test_what_can_not_be_read_ahead_is_refused() -> None:
    model = tiny()
    for options, message in (
        ({"lookup": True, "draft": model}, "leave one"),
        ({"n_ahead": 4}, "give one of them"),
        ({"lookup": True, "n_ahead": 0}, "1 or more"),
        ({"lookup": True, "n_beams": 2}, "follows several texts"),
        ({"draft": tiny(vocab_size=20)}, "other tokens"),
    ):
        with pytest.raises(UsageError, match=message):
            generate(model, [5, 6], **options)
    with pytest.raises(UsageError, match="one by one"):
        generate(model, [[5, 6], [7]], lookup=True)


def test_frequencies_that_follow_the_length_are_refused() -> None:
    whole = config()
    assert whole.decoder is not None
    rotary = RotaryConfig(scaling=DynamicScaling(factor=2.0, trained_length=32))
    blocks = tuple(
        replace(b, mixer=replace(b.mixer, op=replace(b.mixer.op, positions=rotary))) for b in whole.decoder.blocks
    )
    model = Transformer(replace(whole, decoder=replace(whole.decoder, blocks=blocks))).eval()
    with pytest.raises(ClearheadError, match="follow the length"):
        generate(model, [5, 6], lookup=True)
