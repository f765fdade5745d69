"""Beam search: against the `transformers` package, against counting every text, and by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import BeamResult, generate, stream
from clearhead.model.transformer import Transformer
from clearhead.ops.beam import grow, most_worth, worth
from tests import tiny
from tests.generation.scripted import Scripted, Words
from tests.generation.scripted import tiny as tiny_of_ours
from tests.oracles import TOLERANCE, error

PROMPTS = [[5, 6, 7], [9], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]]
PAD = 98


# ---- against transformers

HOW: list[dict[str, Any]] = [
    {"n_beams": 2, "length_penalty": 1.0, "early_stopping": False},
    {"n_beams": 4, "length_penalty": 0.0, "early_stopping": False},
    {"n_beams": 4, "length_penalty": 2.0, "early_stopping": False},
    {"n_beams": 2, "length_penalty": 2.0, "early_stopping": True},
    {"n_beams": 4, "length_penalty": 1.0, "early_stopping": True},
    {"n_beams": 3, "length_penalty": -1.0, "early_stopping": False},
    {"n_beams": 3, "length_penalty": 0.7, "early_stopping": "never"},
    {"n_beams": 4, "length_penalty": -0.5, "early_stopping": "never"},
]
CASES = [("gpt2", "unscaled_untied"), ("llama", "grouped")]


def both(case: tuple[str, str], factory: pytest.TempPathFactory) -> tuple[Any, Transformer]:
    """A tiny model of theirs, and ours of the same weights."""
    theirs = tiny.make(*case)
    folder = factory.mktemp("model")
    theirs.save_pretrained(folder)
    return theirs, clearhead.load(folder)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_texts_and_scores_of_transformers(case: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs, ours = both(case, tmp_path_factory)
    width = max(map(len, PROMPTS))
    padded = {
        "input_ids": torch.tensor([[0] * (width - len(ids)) + ids for ids in PROMPTS]),
        "attention_mask": torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in PROMPTS]),
    }
    free = [result.tokens for result in generate(ours, PROMPTS, n_beams=2, max_new_tokens=8, stop_tokens=())]
    lengths = set()
    for how, ends in itertools.product(HOW, ([free[0][2]], [free[0][4], free[1][3], free[2][1], 17, 40])):
        texts, scores = theirs_of(theirs, padded, width, ends=ends, n=8, **how)
        results = generate(ours, PROMPTS, stop_tokens=ends, max_new_tokens=8, n_best=2, **how)
        assert texts_of(results) == texts, how
        found = torch.tensor([[beam.score for beam in result.beams] for result in results])
        assert error(found, scores) <= TOLERANCE[torch.float32]
        lengths |= {len(result.tokens) for result in results}
    assert len(lengths) > 2  # texts did end on their own, early and late


@pytest.mark.parametrize("what", ["penalty", "bans"])
def test_penalties_and_bans(what: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs, ours = both(CASES[1], tmp_path_factory)
    prompt = PROMPTS[2]
    how: dict[str, Any] = {"stop_tokens": [3], "max_new_tokens": 8, "n_beams": 4, "n_best": 2}
    free = generate(ours, prompt, **how).tokens
    ids = {"input_ids": torch.tensor([prompt]), "attention_mask": torch.ones(1, len(prompt), dtype=torch.long)}
    same: dict[str, Any] = {"repetition_penalty": 1.7} if what == "penalty" else {"suppress_tokens": free[:2]}
    adjusted: dict[str, Any] = same if what == "penalty" else {"logit_bias": dict.fromkeys(free[:2], -math.inf)}
    texts, scores = theirs_of(theirs, ids, len(prompt), ends=[3], n=8, n_beams=4, length_penalty=1.0, **same)
    (result,) = generate(ours, [prompt], **how, **adjusted)
    assert texts_of([result]) == texts
    assert error(torch.tensor([[beam.score for beam in result.beams]]), scores) <= TOLERANCE[torch.float32]
    assert free != result.tokens


def theirs_of(
    model: Any, inputs: dict[str, Tensor], n_prompt: int, *, ends: list[int], n: int, n_beams: int, **how: Any
) -> tuple[list[list[list[int]]], Tensor]:
    """The two best texts behind each prompt without their padding, and their scores."""
    with torch.no_grad():
        out = model.generate(
            **inputs,
            num_beams=n_beams,
            num_return_sequences=2,
            max_new_tokens=n,
            eos_token_id=ends,
            pad_token_id=PAD,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **how,
        )
    new = out.sequences[:, n_prompt:].tolist()
    texts = [ids[: next((i + 1 for i, token in enumerate(ids) if token in ends), n)] for ids in new]
    pairs = [texts[i : i + 2] for i in range(0, len(texts), 2)]
    return pairs, out.sequences_scores.view(-1, 2)


def texts_of(results: Any) -> list[list[list[int]]]:
    return [[beam.tokens for beam in result.beams] for result in results]


# ---- against counting every text


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_never_is_the_best_of_all_texts(penalty: float, seed: int) -> None:
    """H15: four tokens, one of which ends a text, at most four of them."""
    model = tiny_of_ours(seed, vocab_size=4)
    prompt, end, n = [1, 2], 3, 4
    texts = [
        (*body, last)
        for length in range(1, n + 1)
        for body in itertools.product(range(3), repeat=length - 1)
        for last in (range(4) if length == n else (end,))
    ]
    scores = {}
    for length in range(1, n + 1):
        rows = [ids for ids in texts if len(ids) == length]
        with torch.no_grad():
            logits_RTV = model(torch.tensor([[*prompt, *ids] for ids in rows]))[:, len(prompt) - 1 : -1]
        totals_R = logits_RTV.double().log_softmax(-1).gather(-1, torch.tensor(rows)[..., None]).sum(dim=(1, 2))
        scores |= dict(zip(rows, (totals_R / length**penalty).tolist(), strict=True))
    best = sorted(texts, key=lambda ids: -scores[ids])[:5]
    # so many beams that no text is ever dropped
    result = generate(
        model,
        prompt,
        max_new_tokens=n,
        stop_tokens=[end],
        n_beams=64,
        n_best=5,
        length_penalty=penalty,
        early_stopping="never",
    )
    assert [tuple(beam.tokens) for beam in result.beams] == best
    right = torch.tensor([scores[ids] for ids in best], dtype=torch.float64)
    assert error(torch.tensor([beam.score for beam in result.beams]).double(), right) <= TOLERANCE[torch.float32]


# ---- by hand


class Told(Scripted):
    """A model that says how likely each token is behind each text; what it does not say is all but impossible."""

    def __init__(self, told: dict[tuple[int, ...], dict[int, float]], vocab_size: int, n_prompt: int) -> None:
        super().__init__([], vocab_size, n_prompt=n_prompt)
        self.told = told
        self.texts: list[list[int]] = []

    def new_state(self, capacity: int | None = None) -> Any:
        self.texts = []
        state = super().new_state(capacity)

        def select(rows: list[int], **_: Any) -> None:
            self.texts = [list(self.texts[i]) for i in rows]

        state.select = select
        return state

    def forward(self, tokens_BT: Tensor, *, state: Any, last: int, **rest: Any) -> Tensor:
        rows = tokens_BT.tolist()
        self.texts = [text + ids for text, ids in zip(self.texts or [[] for _ in rows], rows, strict=True)]
        logits_BTV = super().forward(tokens_BT, state=state, last=last, **rest)
        for i, text in enumerate(self.texts):
            logprobs = self.told.get(tuple(text[self.n_prompt :]), {})
            rest_of_it = math.log(max(1 - sum(map(math.exp, logprobs.values())), 1e-9) / self.config.vocab_size)
            logits_BTV[i] = rest_of_it
            for token, value in logprobs.items():
                logits_BTV[i, :, token] = value
        return logits_BTV


@pytest.mark.parametrize(("penalty", "best"), [(0.0, "A"), (1.0, "B"), (2.0, "B")])
@pytest.mark.parametrize("early_stopping", [False, "never"])
def test_the_prompt_does_not_count_and_the_end_does(penalty: float, best: str, early_stopping: Any) -> None:
    """H15: behind a prompt of ten, A is two new tokens of -1.0 in all, and B is four of -1.4; the end counts in both.

    With the prompt counted, A would be the better one for each penalty.
    """
    a, b, end = [1, 9], [2, 3, 4, 9], 9
    told = {
        (): {1: -0.8, 2: -0.7},
        (1,): {end: -0.2},
        (2,): {3: -0.3},
        (2, 3): {4: -0.2},
        (2, 3, 4): {end: -0.2},
    }
    model = Told(told, vocab_size=2000, n_prompt=10)
    how = {"n_beams": 2, "n_best": 2, "max_new_tokens": 8, "stop_tokens": [end], "early_stopping": early_stopping}
    result = generate(model, [5] * 10, length_penalty=penalty, **how)
    assert isinstance(result, BeamResult)
    assert result.tokens == {"A": a, "B": b}[best]
    scores = {tuple(beam.tokens): beam.score for beam in result.beams}
    assert scores[tuple(b)] == pytest.approx(-1.4 / 4**penalty, abs=1e-3)
    assert -1.0 / 12**penalty > -1.4 / 14**penalty or penalty == 0  # what counting the prompt would prefer


def test_early_stopping_takes_what_has_ended_first() -> None:
    end = 9
    told = {
        (): {1: -1.2, end: -0.9, 2: -1.6},
        (1,): {end: -2.0, 3: -0.16},
        (2,): {end: -0.1},
        (1, 3): {4: -0.01},
        (1, 3, 4): {end: -0.01},
    }
    model = Told(told, vocab_size=2000, n_prompt=1)
    how: dict[str, Any] = {"n_beams": 2, "n_best": 2, "max_new_tokens": 8, "stop_tokens": [end]}
    soon = generate(model, [5], early_stopping=True, **how)
    assert [beam.tokens for beam in soon.beams] == [[2, end], [end]]
    # one that is longer is worth more: -1.38 / 4
    for early_stopping in (False, "never"):
        late = generate(model, [5], early_stopping=early_stopping, **how)
        assert late.tokens == [1, 3, 4, end]


def test_worth_and_bounds() -> None:
    assert worth(-6.0, 3, 0.0) == -6.0
    assert worth(-6.0, 3, 1.0) == -2.0
    assert worth(-6.0, 3, -1.0) == -18.0
    assert most_worth(-6.0, 3, 12, 1.0, False) == -2.0
    assert most_worth(-6.0, 3, 12, 1.0, "never") == -0.5
    assert most_worth(-6.0, 3, 12, -1.0, "never") == -18.0


def test_growing_leaves_out_what_can_not_be_written() -> None:
    scores = torch.tensor([[-1.0, -math.inf, -3.0], [-math.inf, -0.5, -math.inf]])
    total, parent, token = grow(torch.tensor([0.0, -2.0]), scores, 8)
    assert (total.tolist(), parent.tolist(), token.tolist()) == ([-1.0, -2.5, -3.0], [0, 1, 0], [0, 1, 2])


# ---- with everything else


def test_a_batch_gives_what_each_prompt_gives_alone() -> None:
    model = tiny_of_ours()
    how: dict[str, Any] = {"n_beams": 3, "n_best": 3, "stop_tokens": [7, 8, 11], "top_logprobs": 2}
    lengths = [6, 0, 9]
    together = generate(model, PROMPTS, max_new_tokens=lengths, **how)
    alone = [generate(model, p, max_new_tokens=n, **how) for p, n in zip(PROMPTS, lengths, strict=True)]
    assert texts_of(together) == texts_of(alone)
    assert together[1].tokens == [] and together[1].finish_reason == "length"
    for result, prompt in zip(together, PROMPTS, strict=True):
        for beam in result.beams:
            with torch.no_grad():
                logits_TV = model(torch.tensor([prompt + beam.tokens]))[0, len(prompt) - 1 : -1]
            right_TV = logits_TV.double().log_softmax(-1)
            right_T = right_TV[torch.arange(len(beam.tokens)), torch.tensor(beam.tokens, dtype=torch.long)]
            assert error(torch.tensor(beam.logprobs), right_T) <= TOLERANCE[torch.float32]
            assert [list(top) for top in beam.top_logprobs or []] == right_TV.topk(2).indices.tolist()
            assert beam.score == pytest.approx(float(right_T.sum()) / max(1, len(beam.tokens)), abs=1e-5)


@pytest.mark.parametrize("kind", [{"window": 3}, {"positions": "learned"}])
def test_states_follow_their_texts(kind: dict[str, Any]) -> None:
    """The score of what is found is that of a whole pass over it, so no text went on from another one's memory."""
    model = tiny_of_ours(**kind)
    for result, prompt in zip(generate(model, PROMPTS, n_beams=4, max_new_tokens=10), PROMPTS, strict=True):
        with torch.no_grad():
            logits_TV = model(torch.tensor([prompt + result.tokens]))[0, len(prompt) - 1 : -1]
        right_T = logits_TV.double().log_softmax(-1)[torch.arange(10), torch.tensor(result.tokens)]
        assert result.score == pytest.approx(float(right_T.mean()), abs=1e-5)


def test_stop_texts_end_a_beam() -> None:
    told = {(): {2: -0.1}, (2,): {3: -0.1}, (2, 3): {4: -0.1}}
    model = Told(told, vocab_size=6, n_prompt=1)
    model.tokenizer = Words(["<start>", "<end>", "ok ", "EN", "D!", "?"], eos_ids=(1,))
    result = generate(model, [0], n_beams=2, stop="END", max_new_tokens=5)
    assert (result.text, result.tokens, result.matched, result.finish_reason) == ("ok ", [2, 3, 4], "END", "stop")


def test_a_kept_text_is_continued() -> None:
    model = tiny_of_ours()
    kept = generate(model, PROMPTS[0], max_new_tokens=3, keep=True)
    whole = generate(model, [*PROMPTS[0], *kept.tokens, 8], n_beams=3, max_new_tokens=5)
    assert generate(model, [8], state=kept.state, n_beams=3, max_new_tokens=5).tokens == whole.tokens


def test_what_is_refused() -> None:
    model = tiny_of_ours()
    for wrong, says in (
        ({"n_beams": 0}, "n_beams is 0"),
        ({"n_beams": 2, "n_best": 3}, "1 to 2 answers"),
        ({"length_penalty": 1.0}, "how many beams"),
        ({"n_beams": 2, "temperature": 0.5}, "draws nothing"),
        ({"n_beams": 2, "seed": 0}, "draws nothing"),
        ({"n_beams": 2, "early_stopping": "always"}, "early_stopping is 'always'"),
        ({"n_beams": 2, "length_penalty": math.nan}, "length_penalty is nan"),
        ({"n_beams": 2, "keep": True}, "keep goes with one text"),
    ):
        with pytest.raises(UsageError, match=says):
            generate(model, [5], **wrong)
    with pytest.raises(UsageError, match="only at the end"):
        stream(model, [5], n_beams=2)
    with torch.no_grad():
        model.head.weight[7, 3] = float("nan")
    with pytest.raises(ClearheadError, match="NaN"):
        generate(model, [5], n_beams=2)
