"""States: windows, truncating, choosing rows, and passes with and without gradients."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.state import KVState, WindowState
from tests.model.small import small
from tests.oracles import close


@pytest.mark.parametrize("window", [1, 3, 24, 30])
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_h05_decoding_through_a_window(window, chunk):
    """Every cached step equals the same row of one whole pass, whose mask is a band."""
    model, tokens = small(windows=(window, window, None)), torch.randint(0, 50, (2, 25))
    with torch.no_grad():
        whole = model(tokens)
        state = model.new_state()
        assert close(model(tokens[:, :5], state=state), whole[:, :5])
        for start in range(5, 25, chunk):
            stop = min(start + chunk, 25)
            assert close(model(tokens[:, start:stop], state=state), whole[:, start:stop])
        for layer in (state.at("layers.0.mixer"), state.at("layers.1.mixer")):
            assert isinstance(layer, WindowState)
            assert all(x.shape[2] <= window for x in layer.tensors().values())
            # The buffer is a quarter longer than the window, never as long as the text.
            assert layer._kept._k.shape[2] <= max(window + max(window // 4, 16), 5 + window)
        assert isinstance(state.at("layers.2.mixer"), KVState)


def test_h05_the_window_counts_the_token_itself():
    from clearhead.ops.masks import Causal, Window, bind

    assert bind(Causal() & Window(3), 6, 6).dense[0, 0].sum(-1).tolist() == [1, 2, 3, 3, 3, 3]


def test_a_window_stays_small_over_a_long_text():
    model = small(windows=(4,))
    state = model.new_state()
    tokens = torch.randint(0, 50, (1, 300))
    with torch.no_grad():
        for at in range(300):
            out = model(tokens[:, at : at + 1], state=state)
        assert close(out, model(tokens[:, 200:])[:, -1:])
    assert state.at("layers.0.mixer")._kept._k.shape[2] == 20
    assert state.nbytes == 2 * 4 * 2 * 8 * 4  # k and v, 4 tokens, 2 kv heads of 8, float32


@pytest.mark.parametrize("windows", [(None, None), (30, None)])
def test_h07_dropping_the_last_tokens_and_going_on(windows):
    model, tokens = small(windows=windows), torch.randint(0, 50, (3, 20))
    with torch.no_grad():
        whole, state = model(tokens), model.new_state()
        for at in range(10):
            assert close(model(tokens[:, at : at + 1], state=state), whole[:, at : at + 1])
        model(torch.randint(0, 50, (3, 3)), state=state)
        state.truncate(10)
        assert state.length == 10
        assert close(model(tokens[:, 10:], state=state), whole[:, 10:])
        state.truncate(7)
        assert close(model(tokens[:, 7:9], state=state), whole[:, 7:9])
        state.truncate(0)
        assert close(model(tokens, state=state), whole)


def test_h07_dropping_padded_tokens():
    model, tokens = small(), torch.randint(0, 50, (2, 12))
    present = torch.ones(2, 12, dtype=torch.bool)
    present[0, 1:5] = False
    with torch.no_grad():
        state = model.new_state()
        whole = model(tokens, present=present, state=state)
        state.truncate(8)
        assert state.next.tolist() == [4, 8]
        assert close(model(tokens[:, 8:], present=present[:, 8:], state=state), whole[:, 8:])


def test_a_window_that_has_moved_on_refuses_to_go_back():
    model, tokens = small(windows=(3, None)), torch.randint(0, 50, (1, 60))
    state = model.new_state()
    with torch.no_grad():
        model(tokens[:, :40], state=state)
        for at in range(40, 60):
            model(tokens[:, at : at + 1], state=state)
        assert not state.can_truncate(10)
        with pytest.raises(ClearheadError, match=r"layers\.0\.mixer"):
            state.truncate(10)
        assert state.length == 60
        assert state.at("layers.1.mixer").length == 60


@pytest.mark.parametrize("windows", [(None,), (3,)])
@pytest.mark.parametrize("padded", [False, True])
def test_rows_can_be_chosen_and_repeated(windows, padded):
    model, tokens = small(windows=windows), torch.randint(0, 50, (3, 9))
    present = torch.ones(3, 9, dtype=torch.bool)
    if padded:
        present[1, :4] = False
    rows = [1, 1, 0]
    with torch.no_grad():
        state = model.new_state()
        model(tokens[:, :8], present=present[:, :8], state=state)
        state.select(rows)
        out = model(tokens[rows, 8:], state=state)
        assert close(out, model(tokens[rows], present=present[rows])[:, 8:])


def test_a_state_filled_in_inference_mode_serves_outside_it():
    model, tokens = small(windows=(3, None)), torch.randint(0, 50, (2, 9))
    with torch.inference_mode():
        state = model.new_state()
        model(tokens[:, :4], state=state)
        state.select([0, 1])
        model(tokens[:, 4:5], state=state)
    with torch.no_grad():
        assert close(model(tokens[:, 5:8], state=state), model(tokens[:, :8])[:, 5:])
    out = model(tokens[:, 8:], state=state)
    assert close(out, model(tokens)[:, 8:])
    out.sum().backward()


def test_gradients_flow_through_a_state():
    model, tokens = small(windows=(3, None)), torch.randint(0, 50, (2, 40))
    model(tokens)[:, -1].sum().backward()
    whole = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    state = model.new_state()
    for start in range(0, 40, 8):
        out = model(tokens[:, start : start + 8], state=state)
    out[:, -1].sum().backward()
    for name, p in model.named_parameters():
        assert close(p.grad, whole[name]), name


def test_capacity_is_a_hint():
    model, tokens = small(), torch.randint(0, 50, (1, 12))
    with torch.no_grad():
        state = model.new_state(capacity=3)
        model(tokens[:, :2], state=state)
        assert state.at("layers.0.mixer")._k.shape[2] == 3
        assert close(model(tokens[:, 2:], state=state), model(tokens)[:, 2:])
