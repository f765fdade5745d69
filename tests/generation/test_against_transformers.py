"""The greedy tokens are those of the `transformers` package, alone and in padded batches (rung 9, H01)."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.generation import end_tokens
from tests import tiny
from tests.tiny import llama

PROMPTS = [[5, 6, 7], [9], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]]
CASES = [
    ("gpt2", "plain"),
    ("llama", "grouped"),
    ("llama", "llama3"),
    ("gemma3_text", "five_to_one"),
    ("gemma3_text", "window_of_one"),
]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_greedy_tokens(case: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs = tiny.make(*case)
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    ours = clearhead.load(folder)
    n = 6
    width = max(map(len, PROMPTS))
    tokens = torch.tensor([[0] * (width - len(ids)) + ids for ids in PROMPTS])
    present = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in PROMPTS])
    # -1: no token ends a text
    how = {"do_sample": False, "max_new_tokens": n, "eos_token_id": -1, "pad_token_id": 0, "use_cache": False}
    # one by one, each token from a whole pass: with a window of one, its cache and its padded batch give others
    right = [theirs.generate(torch.tensor([ids]), **how)[0, len(ids) :].tolist() for ids in PROMPTS]
    results = clearhead.generate(ours, PROMPTS, max_new_tokens=n, stop_tokens=(), logprobs=True)
    assert [result.tokens for result in results] == right
    padded = clearhead.generate(ours, tokens, present=present, max_new_tokens=n, stop_tokens=(), prefill_chunk=3)
    assert [result.tokens for result in padded] == right
    assert clearhead.generate(ours, PROMPTS[0], max_new_tokens=n, stop_tokens=()).tokens == right[0]


def test_the_generation_config_of_a_checkpoint_says_what_ends_a_text(tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs = llama.make(eos_token_id=2)
    theirs.generation_config.eos_token_id = [2, 7]
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    assert end_tokens(clearhead.load(folder)) == (2, 7)
