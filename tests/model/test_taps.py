"""Taps: complete, named as catalogued, and without a trace on the output."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.taps import Chain, Editor, Recorder, catalogue, resolve
from tests.model.small import small
from tests.oracles import close, error

SIZES = {"B": 2, "T": 7, "S": 7, "D": 32, "H": 4, "G": 2, "K": 8, "F": 48, "V": 50}


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "sdpa"])
def test_every_site_is_reached_with_the_shape_it_is_catalogued_with(backend):
    model, tokens = small(windows=(3, None)), torch.randint(0, 50, (2, 7))
    seen = Recorder(catalogue(model))
    with torch.no_grad():
        out = model(tokens, taps=seen, backend=backend)
        assert torch.equal(out, model(tokens, backend=backend))
    assert list(catalogue(model)) and set(seen.values) == set(catalogue(model))
    for address, shape in catalogue(model).items():
        assert tuple(seen.values[address].shape) == tuple(SIZES[letter] for letter in shape.split()), address


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_identity_edits_change_no_bit(positions):
    """On the fused kernel, with padding; scores and pattern are edited on the reference alone."""
    model, tokens = small(positions, windows=(3, None)), torch.randint(0, 50, (2, 7))
    present = torch.ones(2, 7, dtype=torch.bool)
    present[0, :2] = False
    names = [a for a in catalogue(model) if not a.endswith(("scores", "pattern"))]
    with torch.no_grad():
        for backend in ("sdpa", "reference"):
            plain = model(tokens, present=present, backend=backend)
            everything = names if backend == "sdpa" else list(catalogue(model))
            same = Editor({address: lambda x: x for address in everything})
            assert torch.equal(model(tokens, present=present, taps=same, backend=backend), plain)


def test_the_stream_is_the_sum_of_what_is_added():
    model, tokens = small(), torch.randint(0, 50, (2, 7))
    seen = Recorder(catalogue(model))
    with torch.no_grad():
        model(tokens, taps=seen)
    v = seen.values
    for i in range(2):
        assert torch.equal(v[f"layers.{i}.resid_mid"], v[f"layers.{i}.resid_pre"] + v[f"layers.{i}.mixer.out"])
        assert torch.equal(v[f"layers.{i}.resid_post"], v[f"layers.{i}.resid_mid"] + v[f"layers.{i}.ffn.out"])
        assert close(v[f"layers.{i}.mixer.pattern"].sum(-1), torch.ones(2, 4, 7))


def test_an_edit_is_what_the_rest_of_the_pass_sees():
    model, tokens = small(), torch.randint(0, 50, (2, 7))
    with torch.no_grad():
        seen = Recorder(["layers.1.resid_pre"])
        other = model(torch.randint(0, 50, (2, 7)), taps=seen)
        patched = model(tokens, taps=Editor({"layers.1.resid_pre": lambda x: seen.values["layers.1.resid_pre"]}))
        assert torch.equal(patched, other)
        # A pattern that looks only at itself passes each token's own value through.
        eye = torch.eye(7).expand(2, 4, 7, 7)
        values = Recorder(["layers.0.mixer.v", "layers.0.mixer.z"])
        model(tokens, taps=Chain(Editor({"layers.0.mixer.pattern": lambda x: eye}), values))
        v = values.values["layers.0.mixer.v"].repeat_interleave(2, dim=1)
        assert error(values.values["layers.0.mixer.z"], v) <= 1e-6


def test_looking_while_a_state_grows():
    model, tokens = small(windows=(3, None)), torch.randint(0, 50, (1, 9))
    with torch.no_grad():
        whole = Recorder(["layers.1.mixer.pattern"])
        model(tokens, taps=whole)
        state = model.new_state()
        model(tokens[:, :8], state=state)
        step = Recorder(["layers.1.mixer.pattern", "layers.0.mixer.pattern"])
        model(tokens[:, 8:], state=state, taps=step)
    pattern = "layers.1.mixer.pattern"
    assert close(step.values[pattern], whole.values[pattern][:, :, 8:])
    assert step.values["layers.0.mixer.pattern"].shape == (1, 4, 1, 3)


def test_gradients_of_what_is_recorded():
    model, tokens = small(), torch.randint(0, 50, (1, 5))
    seen = Recorder(["layers.0.mixer.z"], keep_graph=True)
    loss = model(tokens, taps=seen)[0, -1, 3]
    (gradient,) = torch.autograd.grad(loss, seen.values["layers.0.mixer.z"])
    step = 1e-2 * torch.randn_like(gradient)
    with torch.no_grad():
        moved = model(tokens, taps=Editor({"layers.0.mixer.z": lambda z: z + step}))[0, -1, 3]
    assert float(moved - loss.detach()) == pytest.approx(float((gradient * step).sum()), rel=0.2)


def test_addresses():
    model = small()
    assert resolve(model, ["layers.*.mixer.pattern"]) == ["layers.0.mixer.pattern", "layers.1.mixer.pattern"]
    assert resolve(model, ["logits", "embed"]) == ["embed", "logits"]
    with pytest.raises(ClearheadError, match=r"layers\.7\.mixer\.pattern.*layers\.[01]\.mixer\.pattern"):
        resolve(model, ["layers.7.mixer.pattern"])
    with pytest.raises(ClearheadError, match="patern"):
        resolve(model, ["layers.*.mixer.patern"])
    with pytest.raises(ClearheadError, match="must return a tensor of shape"):
        model(torch.zeros(1, 2, dtype=torch.long), taps=Editor({"embed": lambda x: x[:, :1]}))
