"""The greedy tokens are those of `transformers`' own generation, from whole passes there and cached ones here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.config import TransformerConfig
from tests import tiny
from tests.families.pairs import Inputs, Pair

# Shapes are checked in test_parity.py.
pytestmark = pytest.mark.usefixtures("without_shape_checks")

N_NEW = 5

# -1: no token ends a text. Their cache is off, because for some families it gives other numbers than a whole pass.
THEIRS = {"do_sample": False, "num_beams": 1, "eos_token_id": -1, "pad_token_id": 0, "use_cache": False}


def writes(pair: Pair) -> bool:
    """Whether the model has a head over tokens."""
    config = pair.ours.config
    return isinstance(config, TransformerConfig) and config.heads.tokens is not None


@pytest.mark.parametrize("pair", tiny.cases("decoder"), indirect=True, ids="-".join)
def test_greedy_tokens_of_decoders(pair: Pair) -> None:
    if not writes(pair):
        return
    tokens = pair.inputs.tokens
    assert tokens is not None
    prompts = [tokens[0, :3], tokens[1, :1], tokens[2, :10]] if pair.first else [tokens[1, :1], tokens[2, :4]]
    right = [their_tokens(pair, input_ids=prompt[None])[len(prompt) :] for prompt in prompts]
    lists = [prompt.tolist() for prompt in prompts]
    how: dict[str, Any] = {"max_new_tokens": N_NEW, "stop_tokens": (), "follow_config": False}
    assert [result.tokens for result in clearhead.generate(pair.ours, lists, **how)] == right
    chunked = clearhead.generate(pair.ours, lists, **how, prefill_chunk=3)
    assert [result.tokens for result in chunked] == right
    assert clearhead.generate(pair.ours, lists[-1], **how).tokens == right[-1]


@pytest.mark.parametrize("pair", tiny.cases("seq2seq", "audio"), indirect=True, ids="-".join)
def test_greedy_tokens_behind_an_encoder(pair: Pair) -> None:
    """By the model and its state alone, and by `generate`."""
    if not writes(pair):
        return
    for b in range(2):
        x = pair.inputs.row(b)
        given = {key: value for key, value in pair.in_their_names(x).items() if "decoder" not in key}
        right = their_tokens(pair, **given, decoder_input_ids=torch.tensor([[start_of(pair)]]))[1:]
        assert by_hand(pair, x) == right
        prompt: Any = x.source[0].tolist() if x.source is not None else x.frames
        result = clearhead.generate(
            pair.ours,
            prompt,
            max_new_tokens=N_NEW,
            stop_tokens=(),
            follow_config=False,
            decoder_prompt=[start_of(pair)],
        )
        result = result[0] if isinstance(result, list) else result
        assert result.tokens == right


def by_hand(pair: Pair, x: Inputs) -> list[int]:
    """The best token after each, the source given once."""
    token, state, out = start_of(pair), pair.ours.new_state(), []
    for _ in range(N_NEW):
        step = Inputs(
            tokens=torch.tensor([[token]]), source=None if out else x.source, frames=None if out else x.frames
        )
        token = int(pair.ask(step, state=state)[0, -1].argmax())
        out.append(token)
    return out


def start_of(pair: Pair) -> int:
    """What the decoder begins with."""
    start: int = pair.ours.config.ids.decoder_start
    return start


def their_tokens(pair: Pair, **inputs: Tensor) -> list[int]:
    """What `transformers` generates, behind what was given."""
    from transformers import GenerationConfig, GenerationMixin

    if getattr(pair.ours.config.stack.embed.positions, "pad_id", None) is not None:
        # Their `generate` numbers RoBERTa's positions from 0 on; their whole pass, as published, from pad_id + 1.
        return their_tokens_by_hand(pair, inputs["input_ids"])
    theirs = pair.theirs
    # What a checkpoint advises beside the numbers (tokens to forbid, to begin or to end with) is not the model's.
    theirs.generation_config = GenerationConfig(decoder_start_token_id=pair.ours.config.ids.decoder_start)
    with torch.no_grad():
        # Whisper's own `generate` cuts long sounds in pieces and calls this one.
        ids: list[int] = GenerationMixin.generate(theirs, **inputs, **THEIRS, max_new_tokens=N_NEW)[0].tolist()
    return ids


def their_tokens_by_hand(pair: Pair, tokens: Tensor) -> list[int]:
    for _ in range(N_NEW):
        best = pair.ask_them(Inputs(tokens=tokens)).logits[:, -1:].argmax(-1)
        tokens = torch.cat([tokens, best], dim=1)
    ids: list[int] = tokens[0].tolist()
    return ids
