"""States: windows, truncating, choosing rows, and passes with and without gradients."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.layer_state import KVState, WindowState
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


@pytest.mark.parametrize("seed", range(3))
def test_truncating_with_padding_is_right_or_refused(seed):
    """Padding takes slots and no reach: what a window still holds can't be told from the number of slots."""
    generator = torch.Generator().manual_seed(seed)
    model, n = small(windows=(5, 3)), 36
    tokens = torch.randint(0, 50, (2, n), generator=generator)
    present = torch.rand(2, n, generator=generator) > 0.45
    present[:, 0] = True
    with torch.no_grad():
        for cut in range(n - 1, 0, -4):
            state = model.new_state()
            for at in range(n):
                model(tokens[:, at : at + 1], present=present[:, at : at + 1], state=state)
            if not state.can_truncate(cut):
                with pytest.raises(ClearheadError, match="start a new state"):
                    state.truncate(cut)
                continue
            state.truncate(cut)
            out = model(tokens[:, cut : cut + 1], state=state)
            for row in range(2):
                kept = torch.cat([tokens[row, :cut][present[row, :cut]], tokens[row, cut : cut + 1]])
                assert close(out[row, -1], model(kept[None])[0, -1]), cut


@pytest.mark.parametrize("windows", [(None, None), (3, None)])
def test_a_pass_that_fails_leaves_the_state_as_it_was(windows):
    model, tokens = small("learned", windows=windows), torch.randint(0, 50, (1, 64))
    with torch.no_grad():
        state = model.new_state()
        model(tokens[:, :62], state=state)
        with pytest.raises(ClearheadError, match="65 tokens long"):
            model(tokens[:, :3], state=state)
        with pytest.raises(ClearheadError, match="1 rows and there are 2"):
            model(tokens[:, :1].expand(2, -1), state=state)
        assert state.length == 62
        assert {layer.length for layer in state.layers} == {62}
        assert close(model(tokens[:, 62:], state=state), model(tokens)[:, 62:])


def test_a_pass_interrupted_half_way():
    """Some layers have moved on then, and are taken back; also one whose window has slid."""
    from clearhead.taps import Editor

    def interrupt(x):
        raise KeyboardInterrupt

    for windows in ((None, None), (3, None)):
        model, tokens = small(windows=windows), torch.randint(0, 50, (1, 60))
        with torch.no_grad():
            state = model.new_state()
            model(tokens[:, :30], state=state)
            for place in ("layers.1.resid_pre", "logits"):
                with pytest.raises(KeyboardInterrupt):
                    model(tokens[:, 30:], state=state, taps=Editor({place: interrupt}))
            assert state.length == 30
            assert {layer.length for layer in state.layers} == {30}
            assert close(model(tokens[:, 30:], state=state), model(tokens)[:, 30:])


@pytest.mark.parametrize("window", [1, 4])
def test_a_padded_pass_that_fails_is_taken_back(window):
    """Also where a row has read nothing yet, and where a window of one keeps nothing at all."""
    from clearhead.taps import Editor

    def interrupt(x):
        raise KeyboardInterrupt

    model, tokens = small(windows=(window, None)), torch.randint(0, 50, (2, 60))
    present = torch.ones(2, 60, dtype=torch.bool)
    present[0, :50] = False
    with torch.no_grad():
        state = model.new_state()
        for at in range(40):
            model(tokens[:, at : at + 1], present=present[:, at : at + 1], state=state)
        with pytest.raises(KeyboardInterrupt):
            model(tokens[:, 40:], present=present[:, 40:], state=state, taps=Editor({"logits": interrupt}))
        assert {layer.length for layer in state.layers} == {state.length} == {40}
        out = model(tokens[:, 40:], present=present[:, 40:], state=state)
        whole = model(tokens, present=present)
    assert close(out[1], whole[1, 40:])
    assert close(out[0, 10:], whole[0, 50:])
