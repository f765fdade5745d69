"""Latent attention against its formula in float64, its two forms against each other, and what it remembers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from clearhead.config import (
    LatentAttentionConfig,
    LatentWidths,
    LinearScaling,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    ScoresConfig,
    YarnScaling,
)
from clearhead.errors import ClearheadError
from clearhead.forward import Pass, Places, positions_from
from clearhead.nn.latent_attention import LatentAttention
from clearhead.ops.masks import Positions
from clearhead.state import State
from clearhead.taps import Editor, Recorder
from tests.oracles import close, error

WIDTHS = LatentWidths(q=12, kv=16, nope=8, rope=4, value=6)
PLAIN = LatentAttentionConfig(n_heads=3, widths=WIDTHS, norm=NormConfig(eps=1e-6))
YARN = YarnScaling(factor=8.0, trained_length=16, mscale=1.0, mscale_all_dim=0.7)
CONFIGS = {
    "plain": PLAIN,
    "interleaved": replace(PLAIN, positions=RotaryConfig(base=50.0, interleaved=True)),
    "whole_queries": replace(PLAIN, widths=replace(WIDTHS, q=None)),
    "biased_wide_values": replace(PLAIN, bias=True, widths=replace(WIDTHS, value=20)),
    "yarn": replace(PLAIN, positions=RotaryConfig(interleaved=True, scaling=YARN)),
    "windowed_capped": replace(
        PLAIN, mask=MaskConfig(window=5), scores=ScoresConfig(softcap=2.0, sinks=True, scale=0.5)
    ),
}
N = 14


def layer(config: str | LatentAttentionConfig, dtype: torch.dtype = torch.float32) -> LatentAttention:
    module = LatentAttention(24, CONFIGS[config] if isinstance(config, str) else config)
    module.path = "mixer"
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module.to(dtype).eval()


def whole(module: LatentAttention, x_BTD: torch.Tensor, taps: object = None, backend: str = "auto") -> torch.Tensor:
    positions = Positions(span=(0, x_BTD.shape[1]))
    places = Places(positions, x_BTD.shape[1], x_BTD.device)
    return module(x_BTD, Pass(positions=positions, places=places, taps=taps, backend=backend))


class Reading:
    """A layer that reads piece by piece."""

    def __init__(self, module: LatentAttention) -> None:
        self.module = module
        self.state = State({"mixer": module.new_state(4)})

    def __call__(self, x_BTD, present=None, taps=None):
        positions = positions_from(present, x_BTD.shape[1], self.state.next)
        self.state.advance(positions, x_BTD.device)
        p = Pass(
            positions=positions,
            places=Places(positions, self.state.length, x_BTD.device),
            state=self.state,
            taps=taps,
        )
        return self.module(x_BTD, p)


def by_hand(m: LatentAttention, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Equations 9 to 19 of DeepSeek-V2, head by head; the output, and the patterns."""
    c, w, n = m.config, m.config.widths, x.shape[1]

    def rms(y, norm):
        return y / (y.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight

    def rotated(y):
        plain = c.positions.base ** (-2 * torch.arange(w.rope // 2).double() / w.rope)
        angles = torch.arange(n)[:, None].double() * plain
        rows = torch.zeros(n, w.rope, w.rope, dtype=torch.float64)
        for i in range(w.rope // 2):
            a, b = (2 * i, 2 * i + 1) if c.positions.interleaved else (i, i + w.rope // 2)
            rows[:, a, a] = rows[:, b, b] = angles[:, i].cos()
            rows[:, b, a], rows[:, a, b] = angles[:, i].sin(), -angles[:, i].sin()
        return (rows @ y[..., None])[..., 0]

    if w.q is None:
        q = F.linear(x, m.q_proj.weight)
    else:
        q = F.linear(rms(F.linear(x, m.q_a_proj.weight, m.q_a_proj.bias), m.q_a_norm), m.q_b_proj.weight)
    both = F.linear(x, m.kv_a_proj.weight, m.kv_a_proj.bias)
    k_rope = rotated(both[..., w.kv :])
    kv = F.linear(rms(both[..., : w.kv], m.kv_a_norm), m.kv_b_proj.weight)
    i, j = torch.arange(n)[:, None], torch.arange(n)
    hidden = (j > i) | (i - j >= (c.mask.window or n))
    heads, patterns = [], []
    for h in range(c.n_heads):
        q_h = q[..., h * (w.nope + w.rope) : (h + 1) * (w.nope + w.rope)]
        kv_h = kv[..., h * (w.nope + w.value) : (h + 1) * (w.nope + w.value)]
        scores = q_h[..., : w.nope] @ kv_h[..., : w.nope].mT + rotated(q_h[..., w.nope :]) @ k_rope.mT
        scores = scores * (c.scores.scale or 1 / math.sqrt(w.nope + w.rope))
        if c.scores.softcap is not None:
            scores = c.scores.softcap * torch.tanh(scores / c.scores.softcap)
        scores = scores.masked_fill(hidden, float("-inf"))
        if m.sinks is not None:
            scores = torch.cat([scores, m.sinks[h].expand(*scores.shape[:-1], 1)], dim=-1)
        patterns.append(torch.softmax(scores, -1)[..., :n])
        heads.append(patterns[-1] @ kv_h[..., w.nope :])
    return F.linear(torch.cat(heads, -1), m.o_proj.weight, m.o_proj.bias), torch.stack(patterns, 1)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "yarn"])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "sdpa"])
def test_the_formula(name, backend):
    if name == "windowed_capped" and backend == "sdpa":
        backend = "auto"  # the fused kernel has no soft-cap
    module, x = layer(name, torch.float64), torch.randn(2, N, 24, dtype=torch.float64)
    out, pattern = by_hand(module, x)
    seen = Recorder(["mixer.pattern"])
    # Rotary tables are float32.
    assert error(whole(module, x, seen, backend), out) <= 1e-6
    assert error(seen.values["mixer.pattern"], pattern) <= 1e-6


def test_yarn_makes_the_scores_larger():
    """By the square of 0.1 m ln(factor) + 1, where m is mscale_all_dim; other scalings leave them."""
    gain = 0.1 * 0.7 * math.log(8.0) + 1
    assert layer("yarn").scale == pytest.approx(12**-0.5 * gain**2, rel=1e-12)
    linear = replace(PLAIN, positions=RotaryConfig(scaling=LinearScaling(factor=8.0)))
    assert LatentAttention(24, linear).scale == pytest.approx(12**-0.5, rel=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_read_in_pieces_equals_the_whole_pass(name, chunk):
    """Pieces are read in the absorbed form, the whole pass in the readable one."""
    module, x = layer(name), torch.randn(2, N, 24)
    with torch.no_grad():
        expected, reading = whole(module, x), Reading(module)
        out = torch.cat([reading(x[:, at : at + chunk]) for at in range(0, N, chunk)], dim=1)
    assert close(out, expected)


@pytest.mark.parametrize("name", CONFIGS)
def test_padding_anywhere(name):
    module, x = layer(name), torch.randn(3, N, 24)
    present = torch.ones(3, N, dtype=torch.bool)
    present[0, :4], present[1, 9:], present[2, [2, 3, 7]] = False, False, False
    with torch.no_grad():
        for chunk in (1, 3, N):
            reading = Reading(module)
            pieces = [reading(x[:, at : at + chunk], present=present[:, at : at + chunk]) for at in range(0, N, chunk)]
            out = torch.cat(pieces, dim=1)
            for row in range(3):
                assert close(out[row, present[row]][None], whole(module, x[row : row + 1, present[row]]))


def test_cut_back_and_reordered():
    module, x = layer("yarn"), torch.randn(2, N, 24)
    with torch.no_grad():
        reading = Reading(module)
        reading(torch.cat([x[:, :6], torch.randn(2, 5, 24)], dim=1))
        reading.state.truncate(6)
        reading.state.select([1, 0])
        assert close(reading(x.flip(0)[:, 6:]), whole(module, x.flip(0))[:, 6:])


def test_what_is_kept_is_small():
    """The latent and one rotated key a token, however many heads there are."""
    for n_heads in (3, 16):
        reading = Reading(layer(replace(PLAIN, n_heads=n_heads)))
        reading(torch.randn(2, N, 24))
        assert sum(t.numel() for t in reading.state.layers[0].tensors().values()) == 2 * N * (16 + 4)


@pytest.mark.parametrize("name", CONFIGS)
def test_both_forms_in_float64(name):
    """One set of queries and memories through each."""
    module, x = layer(name, torch.float64), torch.randn(2, N, 24, dtype=torch.float64)
    read_out = Editor({"mixer.k": lambda k: k})  # editing keys needs them written out
    a, b = Reading(module), Reading(module)
    with torch.no_grad():
        a(x[:, :9]), b(x[:, :9])
        assert error(a(x[:, 9:]), b(x[:, 9:], taps=read_out)) <= 1e-12


def test_looking_is_free_and_complete_in_both_forms():
    module, x = layer("biased_wide_values"), torch.randn(1, N, 24)
    names = [f"mixer.{name}" for name in LatentAttention.sites if name != "out"]
    first, later = Recorder(names), Recorder(names)
    with torch.no_grad():
        expected = whole(module, x, first)
        assert torch.equal(expected, whole(module, x))
        plain, looked = Reading(module), Reading(module)
        plain(x[:, :9]), looked(x[:, :9])
        assert torch.equal(plain(x[:, 9:]), looked(x[:, 9:], taps=later))
    assert set(first.values) == set(later.values) == set(names)
    sizes = {"B": 1, "H": 3, "T": N, "S": N, "K": 12, "v": 20}
    for name in names:
        shape = LatentAttention.sites[name.removeprefix("mixer.")].split()
        assert tuple(first.values[name].shape) == tuple(sizes[letter] for letter in shape), name
        new = first.values[name] if shape[2] == "S" else first.values[name][:, :, 9:]
        assert close(later.values[name], new), name


def test_edits():
    module, x = layer("interleaved"), torch.randn(1, N, 24)
    edit = {"mixer.k_raw": lambda k: k * 1.5, "mixer.v": lambda v: -v}
    with torch.no_grad():
        same = Editor({f"mixer.{name}": lambda value: value for name in ("q_raw", "k_raw", "q", "k", "v", "z")})
        assert torch.equal(whole(module, x, same), whole(module, x))
        louder = LatentAttention(24, replace(module.config, scores=ScoresConfig(scale=1.5 * module.scale))).eval()
        louder.load_state_dict(module.state_dict())
        assert close(whole(module, x, Editor(edit)), -whole(louder, x))
        with pytest.raises(ClearheadError, match=r"edit mixer\.k,"):
            Reading(module)(x, taps=Editor(edit))


def test_gradients_flow_through_what_is_kept():
    module, x = layer("plain", torch.float64), torch.randn(1, N, 24, dtype=torch.float64)
    reading = Reading(module)
    pieces = torch.cat([reading(x[:, :9]), reading(x[:, 9:])], dim=1)
    grads = [torch.autograd.grad(out.sum(), list(module.parameters())) for out in (pieces, whole(module, x))]
    for a, b in zip(*grads, strict=True):
        assert error(a, b) <= 1e-6
