"""Whole answers from tiny real models: what a batch, a cache, a chunk or a pause may not change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.config import TokenIds
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import Result, end_tokens, generate, stream
from clearhead.model.transformer import Transformer
from tests.generation.scripted import Words, saying, tiny
from tests.oracles import TOLERANCE, error

PROMPTS = [[5, 6, 7], [9], [3, 1, 4, 1, 5, 9, 2, 6], [11, 12, 13, 14]]
KINDS: list[dict[str, Any]] = [{}, {"positions": "learned"}, {"window": 3}, {"window": 1, "seed": 2}]


def by_whole_passes(model: Transformer, prompt: list[int], n: int) -> list[int]:
    """The greedy tokens, each from a pass over the whole text: the definition."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(n):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


def tokens(results: list[Result]) -> list[list[int]]:
    return [result.tokens for result in results]


# ---- greedy, alone and in batches


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_whole_passes(kind: dict[str, Any]) -> None:
    model = tiny(**kind)
    result = generate(model, [5, 6, 7], max_new_tokens=12)
    assert result.tokens == by_whole_passes(model, [5, 6, 7], 12)
    assert len(set(result.tokens)) > 3  # a constant would prove nothing
    assert (result.finish_reason, result.text, result.prompt_tokens) == ("length", "", [5, 6, 7])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 2, 5, 512])
def test_a_batch_gives_what_each_prompt_gives_alone(kind: dict[str, Any], chunk: int) -> None:
    model = tiny(**kind)
    results = generate(model, PROMPTS, max_new_tokens=8, prefill_chunk=chunk)
    assert tokens(results) == [by_whole_passes(model, prompt, 8) for prompt in PROMPTS]


@pytest.mark.parametrize("side", ["left", "right", "middle"])
def test_padding_may_be_on_any_side(side: str) -> None:
    model = tiny()
    width = 10
    rows, present = torch.full((len(PROMPTS), width), 49), torch.zeros(len(PROMPTS), width, dtype=torch.bool)
    for i, ids in enumerate(PROMPTS):
        start = {"left": width - len(ids), "right": 0, "middle": 1}[side]
        rows[i, start : start + len(ids)] = torch.tensor(ids)
        present[i, start : start + len(ids)] = True
    results = generate(model, rows, present=present, max_new_tokens=6)
    assert tokens(results) == [by_whole_passes(model, prompt, 6) for prompt in PROMPTS]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_one_row_with_padding(positions: str) -> None:
    """H01: [0, 0, 5, 6, 7] with its mask continues as [5, 6, 7]."""
    model = tiny(positions=positions)
    padded = torch.tensor([[0, 0, 5, 6, 7]])
    (result,) = generate(model, padded, present=padded > 0, max_new_tokens=6)
    assert result.tokens == by_whole_passes(model, [5, 6, 7], 6)


def test_rows_end_at_their_own_time_and_stay_in_order() -> None:
    model = tiny()
    lengths = [4, 1, 0, 6]
    results = generate(model, PROMPTS, max_new_tokens=lengths)
    assert tokens(results) == [by_whole_passes(model, p, n) for p, n in zip(PROMPTS, lengths, strict=True)]
    first = by_whole_passes(model, PROMPTS[0], 8)
    ended = generate(model, PROMPTS, max_new_tokens=8, stop_tokens=[first[2]])
    assert ended[0].tokens == first[:3]
    for result, prompt in zip(ended, PROMPTS, strict=True):
        whole = by_whole_passes(model, prompt, 8)
        cut = whole.index(first[2]) + 1 if first[2] in whole else 8
        assert result.tokens == whole[:cut]
        assert result.finish_reason == ("stop" if first[2] in whole else "length")


def test_rows_that_ended_cost_nothing() -> None:
    model = saying("a", "b", "c", "d")
    generate(model, [[0], [0], [0]], max_new_tokens=[1, 4, 2])
    assert model.passes == [(3, 1), (2, 1), (1, 1), (1, 1)]


def test_the_forms_of_a_prompt() -> None:
    model = tiny()
    model.tokenizer = Words([f"w{i} " for i in range(50)])
    model.tokenizer.encode = lambda text, bos=True: [int(word[1:]) for word in text.split()]
    one = generate(model, "w5 w6", max_new_tokens=4)
    assert isinstance(one, Result)
    assert one.text == "".join(f"w{i} " for i in one.tokens)
    for several in (["w5 w6"], [[5, 6]], ((5, 6),), torch.tensor([[5, 6]]), [torch.tensor([5, 6])]):
        assert generate(model, several, max_new_tokens=4) == [one]
    for single in ([5, 6], (5, 6), torch.tensor([5, 6])):
        assert generate(model, single, max_new_tokens=4) == one
    assert generate(model, ["w5 w6", "w9"], max_new_tokens=4)[1] == generate(model, "w9", max_new_tokens=4)


# ---- drawing


def test_a_seed_gives_the_same_text_whatever_the_batch() -> None:
    model = tiny()
    how: dict[str, Any] = {"max_new_tokens": 10, "temperature": 0.9, "top_k": 20, "top_p": 0.95, "min_p": 0.01}
    together = generate(model, PROMPTS, seed=4, **how)
    assert tokens(together) == tokens([generate(model, prompt, seed=4, **how) for prompt in PROMPTS])
    assert tokens(together) == tokens(generate(model, PROMPTS[::-1], seed=4, **how)[::-1])
    assert tokens(together) != tokens(generate(model, PROMPTS, seed=5, **how))


def test_a_prompt_that_stands_several_times_gets_several_texts() -> None:
    model = tiny()
    results = generate(model, [[5, 6]] * 4, seed=1, max_new_tokens=10)
    assert len({tuple(result.tokens) for result in results}) == 4
    assert results[0].tokens == generate(model, [5, 6], seed=1, max_new_tokens=10).tokens


def test_rows_have_their_own_settings() -> None:
    model = tiny()
    how: dict[str, list[Any]] = {
        "temperature": [0.0, 1.0, 0.7, 0.0],
        "top_k": [0, 5, 0, 3],
        "seed": [1, 2, 3, 4],
        "repetition_penalty": [1.0, 1.3, 1.0, 2.0],
        "presence_penalty": [0.5, 0.0, 0.0, 0.0],
        "frequency_penalty": [0.0, 0.0, 1.0, 0.0],
        "max_new_tokens": [8, 6, 7, 8],
    }
    together = generate(model, PROMPTS, **how)
    alone = [generate(model, p, **{name: values[i] for name, values in how.items()}) for i, p in enumerate(PROMPTS)]
    assert tokens(together) == tokens(alone)
    assert together[0].tokens != by_whole_passes(model, PROMPTS[0], 8)  # the penalty did something


def test_penalties_forbid_what_they_should() -> None:
    model = tiny()
    n = 12
    assert len(set(generate(model, [5, 6, 7], max_new_tokens=n, presence_penalty=1e4).tokens)) == n
    assert len(set(generate(model, [5, 6, 7], max_new_tokens=n, frequency_penalty=1e4).tokens)) == n
    free = generate(model, [5, 6, 7], max_new_tokens=n).tokens
    assert len(set(free)) < n
    never = generate(model, [5, 6, 7], max_new_tokens=n, logit_bias={free[0]: -float("inf")}).tokens
    assert free[0] not in never
    assert generate(model, [5], max_new_tokens=3, logit_bias={8: float("inf")}).tokens == [8, 8, 8]


@pytest.mark.parametrize("how", [{"temperature": 0}, {"temperature": 5.0, "seed": 0}])
def test_no_id_beyond_the_tokenizers(how: dict[str, Any]) -> None:
    model = tiny()
    # Without a tokenizer the same model says ids beyond those seven words, so it matters that there is one.
    assert max(max(generate(model, [i], max_new_tokens=20, **how).tokens) for i in (0, 6)) > 6
    model.tokenizer = Words([f"w{i} " for i in range(7)])
    for i in (0, 6):
        assert max(generate(model, [i], max_new_tokens=20, **how).tokens) <= 6


# ---- log-probabilities


@pytest.mark.parametrize("how", [{"temperature": 0}, {"temperature": 0.5, "top_k": 3, "seed": 1}])
def test_log_probabilities_are_the_models_own(how: dict[str, Any]) -> None:
    model = tiny()
    results = generate(model, PROMPTS, max_new_tokens=[5, 3, 4, 5], logprobs=True, top_logprobs=3, **how)
    for prompt, result in zip(PROMPTS, results, strict=True):
        with torch.no_grad():
            logits_TV = model(torch.tensor([prompt + result.tokens]))[0, len(prompt) - 1 : -1]
        right_TV = logits_TV.double().log_softmax(-1)
        right_T = right_TV[torch.arange(len(result.tokens)), torch.tensor(result.tokens)]
        assert result.logprobs is not None
        assert error(torch.tensor(result.logprobs), right_T) <= TOLERANCE[torch.float32]
        assert result.top_logprobs is not None
        assert [list(top) for top in result.top_logprobs] == right_TV.topk(3).indices.tolist()
    assert generate(model, [5], max_new_tokens=2).logprobs is None


def test_pieces_know_their_tokens() -> None:
    pieces = list(stream(saying("a", "EN", "x"), [0], stop="END", logprobs=True, max_new_tokens=3))
    assert [(str(piece), piece.tokens) for piece in pieces] == [("a", [2]), ("ENx", [3, 4])]
    assert [len(piece.logprobs or []) for piece in pieces] == [1, 2]


def test_a_stream_without_a_tokenizer_gives_tokens() -> None:
    pieces = list(stream(tiny(), [5, 6], max_new_tokens=3))
    assert [piece.tokens for piece in pieces] == [[t] for t in by_whole_passes(tiny(), [5, 6], 3)]


# ---- the window


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_generation_ends_where_the_window_does(positions: str) -> None:
    model = tiny(positions=positions, context=16)
    result = generate(model, list(range(10)), max_new_tokens=50)
    # the 16th place is the last that can be read, and the token behind it is still known
    assert (result.finish_reason, len(result.tokens)) == ("context", 7)
    assert result.tokens == by_whole_passes(model, list(range(10)), 7)
    assert generate(model, list(range(16)), max_new_tokens=5).finish_reason == "context"
    assert generate(model, list(range(10)), max_new_tokens=7).finish_reason == "length"


def test_a_prompt_beyond_the_window_is_refused_or_cut() -> None:
    model = tiny(context=16, ids=TokenIds(bos=0))
    long = list(range(20))
    with pytest.raises(ClearheadError, match=r"20 tokens and this model's window 16; .*overflow=.cut_left"):
        generate(model, long)
    cut = generate(model, long, max_new_tokens=4, overflow="cut_left")
    assert cut.prompt_tokens == [0, *range(9, 20)]
    assert cut.tokens == by_whole_passes(model, cut.prompt_tokens, 4)
    assert len(generate(model, long[1:], max_new_tokens=400, overflow="cut_left").prompt_tokens) == 8
    assert generate(model, long[:16], max_new_tokens=1, overflow="cut_left").prompt_tokens == long[:16]


# ---- what is refused


def test_an_empty_prompt_is_the_first_token_or_refused() -> None:
    model = tiny()
    for empty in ([], torch.zeros(0, dtype=torch.long), [[]], torch.zeros(1, 3, dtype=torch.long)):
        present = torch.zeros(1, 3, dtype=torch.bool) if isinstance(empty, Tensor) and empty.ndim == 2 else None
        with pytest.raises(ClearheadError, match="prompt is empty"):
            generate(model, empty, present=present)
    model.tokenizer = Words(["<s>", *"abcdef"], bos_id=0)
    assert generate(model, "", max_new_tokens=2).prompt_tokens == [0]
    assert generate(model, [], max_new_tokens=2).prompt_tokens == [0]
    with_config = tiny(ids=TokenIds(bos=3))
    assert generate(with_config, [], max_new_tokens=2).prompt_tokens == [3]


def test_prompts_that_are_none() -> None:
    model = tiny()
    with pytest.raises(ClearheadError, match="no tokenizer"):
        generate(model, "text")
    for wrong in (torch.zeros(2, 2), torch.zeros(1, 2, 2, dtype=torch.long), [1.5, 2]):
        with pytest.raises(UsageError):
            generate(model, wrong)
    with pytest.raises(UsageError, match="present has shape"):
        generate(model, torch.tensor([[1, 2]]), present=torch.tensor([[True]]))
    with pytest.raises(UsageError, match="present goes with"):
        generate(model, [1, 2], present=torch.tensor([[True, True]]))
    with pytest.raises(UsageError, match="one prompt, not 2"):
        stream(model, torch.tensor([[1], [2]]))
    with pytest.raises(ClearheadError, match="not in this model's vocabulary"):
        generate(model, [50])


@pytest.mark.parametrize("how", [{}, {"seed": 1}])
def test_nan_weights_are_told_apart_from_an_answer(how: dict[str, Any]) -> None:
    model = tiny()
    with torch.no_grad():
        model.head.weight[7, 3] = float("nan")
    with pytest.raises(ClearheadError, match="NaN"):
        generate(model, [5], **how)


# ---- good manners


def test_the_model_is_left_as_it_was() -> None:
    model = tiny().train()
    pieces = stream(model, [5], max_new_tokens=3)
    next(pieces)
    assert not torch.is_inference_mode_enabled()
    list(pieces)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_end_tokens_come_from_config_and_tokenizer() -> None:
    model = tiny(ids=TokenIds(eos=(3, 4)))
    assert end_tokens(model) == (3, 4)
    model.tokenizer = Words(["a"] * 50, eos_ids=(4, 9))
    assert end_tokens(model) == (3, 4, 9)
