"""The block against its formula written out in float64, in all five norm placements."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from clearhead.config import (
    AlibiConfig,
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    FeedForwardConfig,
    MaskConfig,
    NormConfig,
    QKNormConfig,
    RotaryConfig,
    ScoresConfig,
    SublayerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.forward import Pass, Places
from clearhead.nn.attention import Attention
from clearhead.nn.block import Block
from clearhead.ops.masks import Positions
from tests.oracles import error

N = NormConfig(kind="layer", eps=1e-5, bias=True)
PLACEMENTS = {
    "pre": ({"pre": N}, False),
    "post": ({"after": N}, False),
    "sandwich": ({"pre": N, "out": N}, False),
    "out": ({"out": N}, False),
    "parallel": ({"pre": N}, True),
}


def a_pass(n: int) -> Pass:
    positions = Positions(span=(0, n))
    return Pass(positions=positions, places=Places(positions, n, torch.device("cpu")))


def filled(module: torch.nn.Module) -> torch.nn.Module:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.double().eval()


def attention_by_hand(m: Attention, x: torch.Tensor) -> torch.Tensor:
    """softmax(q k^T / sqrt(d)) v, head by head."""
    n, d = x.shape[1], m.config.d_head
    q, k, v = (F.linear(x, p.weight, p.bias) for p in (m.q_proj, m.k_proj, m.v_proj))
    hidden = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
    group = m.config.n_heads // m.config.n_kv_heads
    heads = []
    for h in range(m.config.n_heads):
        g = h // group
        q_h, k_g, v_g = q[..., h * d : h * d + d], k[..., g * d : g * d + d], v[..., g * d : g * d + d]
        scores = (q_h @ k_g.transpose(1, 2) / d**0.5).masked_fill(hidden, float("-inf"))
        heads.append(torch.softmax(scores, -1) @ v_g)
    return F.linear(torch.cat(heads, -1), m.o_proj.weight, m.o_proj.bias)


def norm_by_hand(norm: torch.nn.Module | None, x: torch.Tensor) -> torch.Tensor:
    if norm is None:
        return x
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias


@pytest.mark.parametrize("placement", list(PLACEMENTS))
def test_norm_placements(placement):
    norms, parallel = PLACEMENTS[placement]
    attention = AttentionConfig(n_heads=4, n_kv_heads=2, d_head=6, bias=BiasConfig(q=True, k=True, v=True, o=True))
    feed_forward = FeedForwardConfig(d_ff=40, activation="gelu", gated=False, bias=True)
    block = filled(
        Block(
            16,
            BlockConfig(
                mixer=SublayerConfig(op=attention, scale=0.5, **norms),
                ffn=SublayerConfig(op=feed_forward, scale=2.0, **norms),
                parallel=parallel,
            ),
        )
    )
    x = torch.randn(2, 7, 16, dtype=torch.float64)

    def mixer(y: torch.Tensor) -> torch.Tensor:
        n = block.mixer_norm
        return 0.5 * norm_by_hand(n.out, attention_by_hand(block.mixer, norm_by_hand(n.pre, y)))

    def ffn(y: torch.Tensor) -> torch.Tensor:
        n, m = block.ffn_norm, block.ffn
        pre = F.linear(norm_by_hand(n.pre, y), m.up_proj.weight, m.up_proj.bias)
        return 2 * norm_by_hand(n.out, F.linear(F.gelu(pre), m.down_proj.weight, m.down_proj.bias))

    if parallel:
        expected = x + mixer(x) + ffn(x)
    else:
        middle = norm_by_hand(block.mixer_norm.after, x + mixer(x))
        expected = norm_by_hand(block.ffn_norm.after, middle + ffn(middle))
    assert error(block(x, a_pass(7)), expected) <= 1e-12


def test_gated_feed_forward():
    block = Block(
        8,
        BlockConfig(
            mixer=SublayerConfig(op=AttentionConfig(n_heads=1, n_kv_heads=1, d_head=8)),
            ffn=SublayerConfig(op=FeedForwardConfig(d_ff=12, activation="silu")),
        ),
    )
    m = filled(block).ffn
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    gate, up = x @ m.gate_proj.weight.T, x @ m.up_proj.weight.T
    assert error(m(x, a_pass(3)), (gate * torch.sigmoid(gate) * up) @ m.down_proj.weight.T) <= 1e-12


@pytest.mark.parametrize("over", ["head", "all_heads"])
def test_qk_norm(over):
    """Per head the norm sees K numbers; over all heads it sees the whole projection."""
    config = AttentionConfig(
        n_heads=2, n_kv_heads=2, d_head=4, qk_norm=QKNormConfig(norm=NormConfig(eps=1e-6), over=over)
    )
    attention = filled(Attention(8, config))
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    seen = {}

    class Look:  # as clearhead.taps.Taps
        def mode(self, path, name):
            return "read"

        def __call__(self, path, name, value):
            seen[name] = value
            return value

    p = a_pass(5)
    p.taps = Look()
    attention(x, p)
    q = attention.q_proj(x)
    if over == "all_heads":
        q = q / (q.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * attention.q_norm.weight
        expected = q.unflatten(-1, (2, 4)).transpose(1, 2)
    else:
        q = q.unflatten(-1, (2, 4)).transpose(1, 2)
        expected = q / (q.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * attention.q_norm.weight
    assert error(seen["q_raw"], expected) <= 1e-12


def test_alibi_and_softcap_and_sinks_reach_the_scores():
    scores = ScoresConfig(scale=0.7, softcap=1.5, sinks=True)
    config = AttentionConfig(n_heads=2, n_kv_heads=1, d_head=4, scores=scores, positions=AlibiConfig())
    attention = filled(Attention(8, config))
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    q = attention.q_proj(x).unflatten(-1, (2, 4)).transpose(1, 2)
    k, v = attention.k_proj(x)[:, None], attention.v_proj(x)[:, None]
    raw = torch.tanh(q @ k.transpose(2, 3) * 0.7 / 1.5) * 1.5
    distance = torch.arange(6)[:, None] - torch.arange(6)
    slopes = torch.tensor([2**-4.0, 2**-8.0])[:, None, None]  # Press 2021, section 3: 2^(-8/n), and its powers
    raw = (raw - slopes * distance).masked_fill(distance < 0, float("-inf"))
    weights = torch.softmax(torch.cat([raw, attention.sinks[:, None, None].expand(1, 2, 6, 1)], -1), -1)[..., :-1]
    expected = attention.o_proj((weights @ v).transpose(1, 2).flatten(2))
    assert error(attention(x, a_pass(6)), expected) <= 1e-6  # slopes and positions are float32


def test_dropout_is_only_for_training():
    config = BlockConfig(
        mixer=SublayerConfig(
            op=AttentionConfig(n_heads=1, n_kv_heads=1, d_head=8, scores=ScoresConfig(dropout=0.5)), dropout=0.5
        ),
        ffn=SublayerConfig(op=FeedForwardConfig(d_ff=16, dropout=0.5), dropout=0.5),
    )
    block, x = filled(Block(8, config)), torch.randn(1, 4, 8, dtype=torch.float64)
    assert torch.equal(block(x, a_pass(4)), block(x, a_pass(4)))
    block.train()
    assert not torch.equal(block(x, a_pass(4)), block(x, a_pass(4)))


def test_configs_refuse_what_makes_no_sense():
    with pytest.raises(ClearheadError, match="multiple"):
        AttentionConfig(n_heads=4, n_kv_heads=3, d_head=8)
    with pytest.raises(ClearheadError, match="more than 0"):
        MaskConfig(window=0)
    with pytest.raises(ClearheadError, match="fraction"):
        RotaryConfig(fraction=1.5)
    with pytest.raises(TypeError, match="n_head"):
        AttentionConfig(n_head=4, n_kv_heads=4, d_head=8)
    with pytest.raises(ClearheadError, match="parallel"):
        BlockConfig(mixer=SublayerConfig(op=AttentionConfig(n_heads=1, n_kv_heads=1, d_head=1)), parallel=True)
