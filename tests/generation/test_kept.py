"""Continuing a kept text: "a then b" is what one go gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import Kept, generate
from tests.generation.scripted import tiny

HOW: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 3, "temperature": 0.8, "top_k": 10},
    {"temperature": 0, "repetition_penalty": 1.2, "presence_penalty": 1.0, "frequency_penalty": 0.5},
]


def kept(model: Any, prompt: list[int], n: int, **how: Any) -> tuple[list[int], Kept]:
    result = generate(model, prompt, max_new_tokens=n, keep=True, **how)
    assert result.state is not None
    return result.tokens, result.state


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("cut", [0, 1, 5])
def test_stopping_and_going_on_is_one_go(how: dict[str, Any], window: int | None, cut: int) -> None:
    model = tiny(window=window)
    whole = generate(model, [5, 6, 7], max_new_tokens=12, **how).tokens
    first, state = kept(model, [5, 6, 7], cut, **how)
    second, state = kept(model, [], 4, state=state, **how)
    third = generate(model, [], max_new_tokens=8 - cut, state=state, **how).tokens
    assert first + second + third == whole


@pytest.mark.parametrize("chunk", [1, 2, 512])
def test_a_prompt_in_two_parts_is_one_prompt(chunk: int) -> None:
    model = tiny()
    _, state = kept(model, [5, 6, 7], 0)
    result = generate(model, [8, 9, 10], state=state, max_new_tokens=6, prefill_chunk=chunk)
    assert result.tokens == generate(model, [5, 6, 7, 8, 9, 10], max_new_tokens=6).tokens
    assert result.prompt_tokens == [8, 9, 10]


def test_saying_something_behind_an_answer() -> None:
    model = tiny()
    answer, state = kept(model, [5, 6, 7], 4)
    assert state.tokens == [5, 6, 7, *answer]
    result = generate(model, [20, 21], state=state, max_new_tokens=5)
    assert result.tokens == generate(model, [5, 6, 7, *answer, 20, 21], max_new_tokens=5).tokens


def test_rows_of_a_batch_are_kept_each_on_its_own() -> None:
    model = tiny()
    prompts = [[5, 6, 7], [9], [3, 1, 4, 1, 5]]
    whole = generate(model, prompts, max_new_tokens=10)
    first = generate(model, prompts, max_new_tokens=[4, 2, 6], keep=True)
    for i in (2, 0, 1):
        rest = generate(model, [], state=first[i].state, max_new_tokens=10 - len(first[i].tokens))
        assert first[i].tokens + rest.tokens == whole[i].tokens


def test_a_kept_text_serves_once() -> None:
    model = tiny()
    _, state = kept(model, [5, 6, 7], 3)
    branch = state.copy()
    one = generate(model, [1], state=state, max_new_tokens=5).tokens
    with pytest.raises(ClearheadError, match="continued already"):
        generate(model, [1], state=state)
    assert generate(model, [1], state=branch, max_new_tokens=5).tokens == one
    with pytest.raises(UsageError, match="continued by one prompt, not by 2"):
        generate(model, [[1], [2]], state=kept(model, [5], 1)[1])


def test_a_conversation_written_anew_reads_only_what_is_new() -> None:
    model = tiny()
    _, state = kept(model, [5, 6, 7], 4)
    told = [*state.tokens[:5], 30, 31, 32]
    rest = state.back_to(told)
    assert rest == [30, 31, 32]
    assert generate(model, rest, state=state, max_new_tokens=5).tokens == generate(model, told, max_new_tokens=5).tokens
    # the same text again: its last token has to be read for the scores behind it
    _, state = kept(model, [5, 6, 7], 0)
    assert state.back_to([5, 6, 7]) == [7]
    assert (
        generate(model, [7], state=state, max_new_tokens=3).tokens
        == generate(model, [5, 6, 7], max_new_tokens=3).tokens
    )


def test_a_window_that_slid_past_says_so() -> None:
    model = tiny(window=3)
    _, state = kept(model, list(range(40)), 4)
    before = state.length
    assert state.back_to([0, 1, 2, 3]) is None
    assert (state.length, len(state.tokens)) == (before, 44)


def test_a_kept_text_fills_the_window() -> None:
    model = tiny(context=16)
    answer, state = kept(model, list(range(10)), 4)
    with pytest.raises(ClearheadError, match="behind 14 kept ones"):
        generate(model, [1, 2, 3], state=state)
    _, state = kept(model, list(range(10)), 4)
    result = generate(model, [], state=state, max_new_tokens=50, keep=True)
    assert (result.finish_reason, len(answer) + len(result.tokens)) == ("context", 7)
    with pytest.raises(ClearheadError, match="window 16"):
        generate(model, [], state=result.state)


def test_a_kept_state_can_be_used_outside() -> None:
    model = tiny()
    _, state = kept(model, [5, 6, 7], 2)
    with torch.no_grad():
        logits = model(torch.tensor([state.tokens[state.n_read :]]), state=state.state)
        assert torch.allclose(logits[:, -1], model(torch.tensor([state.tokens]))[:, -1], atol=1e-5)


def test_one_of_several_equal_prompts_goes_on_as_itself() -> None:
    model, how = tiny(), {"seed": 5, "temperature": 1.0}
    whole = generate(model, [[5, 6], [5, 6]], max_new_tokens=8, **how)
    first = generate(model, [[5, 6], [5, 6]], max_new_tokens=4, keep=True, **how)
    for row in range(2):
        rest = generate(model, [], max_new_tokens=4, state=first[row].state, **how)
        assert first[row].tokens + rest.tokens == whole[row].tokens


def test_equal_prompts_with_seeds_of_their_own_are_as_alone() -> None:
    model = tiny()
    both = generate(model, [[1, 2], [1, 2]], seed=[5, 6], temperature=1.0, max_new_tokens=8)
    for result, seed in zip(both, (5, 6), strict=True):
        assert result.tokens == generate(model, [1, 2], seed=seed, temperature=1.0, max_new_tokens=8).tokens
