"""Looking and changing while a model writes: every step's values are those of one pass over the whole text.

All families are held to that in tests/families/test_looking.py.
"""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import at, edit, look, steer, zero
from clearhead.lens.generating import edit_generating, look_generating
from clearhead.taps import catalogue
from tests.lens.conftest import make_model
from tests.oracles import TOLERANCE, error

F32 = TOLERANCE[torch.float32]
PROMPT = [0, 5, 17, 9, 30]
HOW = {"max_new_tokens": 6, "stop_tokens": ()}
Z, RESID = "layers.1.mixer.z", "layers.0.resid_post"


@pytest.fixture
def model():
    return writer()


def writer(window: int | None = None):
    """A model that is given ids, and that writes ids."""
    model = make_model(window=window)
    model.tokenizer = None
    return model


@pytest.mark.parametrize("window", [None, 3])
def test_steps_put_together_are_the_whole_pass(window):
    """With a window, keys that were let go of stand where they were: with no weight."""
    model = writer(window)
    everything = list(catalogue(model))
    seen = look_generating(model, PROMPT, *everything, **HOW)
    plain = clearhead.generate(model, PROMPT, **HOW)
    assert seen.output == plain
    tokens = [*PROMPT, *plain.tokens[:-1]]
    assert seen.tokens == [[str(token) for token in tokens]]
    whole = look(model, tokens, *everything)
    for address in everything:
        assert error(seen[address], whole[address]) <= F32, address
    assert not seen.output.state


def test_what_was_seen_can_be_used_in_a_graph(model):
    """Generating runs in inference mode, whose tensors can't."""
    seen = look_generating(model, PROMPT, RESID, **HOW)
    weight = torch.ones(32, requires_grad=True)
    (seen[RESID] * weight).sum().backward()
    assert weight.grad.any()


def test_chosen_positions_count_in_the_whole_text(model):
    whole = look_generating(model, PROMPT, RESID, "layers.1.mixer.pattern", **HOW)
    some = look_generating(model, PROMPT, RESID, "layers.1.mixer.pattern", positions=[7, 1, -1], device="cpu", **HOW)
    assert torch.equal(some[RESID], whole[RESID][:, [7, 1, 9]])
    assert torch.equal(some["layers.1.mixer.pattern"], whole["layers.1.mixer.pattern"][:, :, [7, 1, 9]])
    with pytest.raises(ClearheadError, match="positions 0 to 9 in this text, not 10"):
        look_generating(model, PROMPT, RESID, positions=[10], **HOW)


@pytest.mark.parametrize(
    "edits",
    [
        {Z: at(zero, heads=[1, 2])},
        {RESID: at(steer(5 * torch.ones(32)), positions=[6])},
        {"layers.0.mixer.pattern": at(zero, heads=[0], keys=[2])},
        {"layers.*.mixer.k": at(zero, positions=[1])},
        {"blocks.0.mlp.hook_post": lambda post: post * 0.5},
    ],
)
def test_an_edit_of_every_step_is_that_of_the_whole_text(model, edits):
    """The oracle reads the whole text anew for each token."""
    tokens = list(PROMPT)
    for _ in range(HOW["max_new_tokens"]):
        # A position that is not reached yet is an error in a whole pass, so the text is filled up behind.
        filled = tokens + [1] * (12 - len(tokens))
        logits = edit(model, filled, edits)
        tokens.append(int(logits[0, len(tokens) - 1].argmax()))
    result = edit_generating(model, PROMPT, edits, **HOW)
    assert result.tokens == tokens[len(PROMPT) :]
    seen = look_generating(model, PROMPT, Z, "logits", edits=edits, **HOW)
    whole = look(model, [*tokens[:-1], 1, 1], Z, "logits", edits=edits)
    for address in seen:
        assert error(seen[address], whole[address].narrow(1 if address == "logits" else 2, 0, 10)) <= F32


def test_an_edit_that_matters_changes_the_text(model):
    plain = clearhead.generate(model, PROMPT, **HOW)
    changed = edit_generating(model, PROMPT, {RESID: at(steer(50 * torch.randn(32)), positions=[-1])}, **HOW)
    assert changed.tokens != plain.tokens
    assert clearhead.generate(model, PROMPT, **HOW) == plain


def test_an_edit_that_fails_leaves_the_model_as_it_was(model):
    plain = clearhead.generate(model, PROMPT, **HOW)
    calls = []

    def fail_later(value: torch.Tensor) -> torch.Tensor:
        calls.append(value.shape[1])
        return value[:, :0] if len(calls) == 3 else value

    model.train()
    with pytest.raises(ClearheadError, match=r"layers\.0\.resid_post must return a tensor of shape \(1, 1, 32\)"):
        edit_generating(model, PROMPT, {RESID: fail_later}, **HOW)
    assert calls == [5, 1, 1] and model.training
    assert clearhead.generate(model.eval(), PROMPT, **HOW) == plain


def test_one_text_at_a_time(model):
    for prompt, options, words in (
        ([PROMPT, PROMPT[:3]], {}, "one prompt"),
        (PROMPT, {"n_beams": 2}, "beam"),
        (PROMPT, {"state": clearhead.generate(model, PROMPT, keep=True).state}, "the whole text"),
    ):
        with pytest.raises(UsageError, match=words):
            look_generating(model, prompt, RESID, **options)
    kept = look_generating(model, [PROMPT], RESID, keep=True, **HOW).output.state
    assert kept.tokens[: kept.n_read] == [*PROMPT, *kept.tokens[5:-1]]
    with pytest.raises(ClearheadError, match=r"heads 0 to 3, not 4"):
        edit_generating(model, PROMPT, {Z: at(zero, heads=[4])}, **HOW)
