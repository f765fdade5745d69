"""Sinusoids and rotary tables against their formulas, worked numbers and the published code."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.config import DynamicScaling, Llama3Scaling, LongRopeScaling, RotaryConfig
from clearhead.nn.rotary import frequencies, same_frequencies
from clearhead.ops import positions as ops
from tests.oracles import close, error
from tests.tiny import llama


def test_sinusoids_are_the_papers_formula():
    table = ops.sinusoids(torch.arange(50), 8)
    for pos in (0, 1, 7, 49):
        for i in range(4):
            angle = pos / 10000 ** (2 * i / 8)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoids_in_halves_hold_the_same_numbers():
    position = torch.arange(9)
    assert torch.equal(ops.sinusoids(position, 6, "halves"), ops.sinusoids(position, 6)[:, [0, 2, 4, 1, 3, 5]])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotation_is_complex_multiplication(interleaved):
    """Su 2021, eq. 13: a pair is a complex number, turned by position x frequency."""
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    position = torch.tensor([[0, 1, 2, 30, 31]])
    frequency = ops.frequencies(8, 10000.0)
    cos, sin = ops.rotary_tables(position, frequency, interleaved)
    turned = ops.rotate(x, cos[:, None].double(), sin[:, None].double(), interleaved)
    pairs = x.unflatten(-1, (-1, 2)) if interleaved else torch.stack(x.chunk(2, -1), -1)
    by_hand = torch.view_as_complex(pairs.contiguous()) * torch.exp(1j * position[0, :, None] * frequency.double())
    got = turned.unflatten(-1, (-1, 2)) if interleaved else torch.stack(turned.chunk(2, -1), -1)
    # The tables are float32, so the angle of position 31 is off by up to 31 x 2^-24.
    assert error(got, torch.view_as_real(by_hand)) <= 4e-6


def test_scores_depend_on_the_offset_alone():
    q, k = torch.randn(1, 1, 1, 64), torch.randn(1, 1, 1, 64)

    def score(m: int, n: int) -> float:
        tables = [ops.rotary_tables(torch.tensor([[p]]), ops.frequencies(64, 10000.0), False) for p in (m, n)]
        a, b = (ops.rotate(x, c[:, None], s[:, None], False) for x, (c, s) in zip((q, k), tables, strict=True))
        return float((a * b).sum())

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)
    assert abs(score(9, 4) - score(9, 5)) > 1e-2


def test_part_of_a_head_may_be_left_alone():
    x = torch.randn(1, 2, 4, 10)
    cos, sin = ops.rotary_tables(torch.arange(4)[None], ops.frequencies(6, 100.0), False)
    turned = ops.rotate(x, cos[:, None], sin[:, None], False)
    assert torch.equal(turned[..., 6:], x[..., 6:])
    assert torch.equal(turned[..., :6], ops.rotate(x[..., :6], cos[:, None], sin[:, None], False))


def test_h03_tables_stay_exact_after_a_cast(tmp_path):
    """Angles computed in a half dtype are wrong by whole turns; computed in float32 and rounded once they are not."""
    exact, _ = ops.rotary_tables(torch.arange(2048)[None], ops.frequencies(32, 10000.0), False)
    by_hand = torch.cos(torch.arange(2048)[:, None].double() * 10000.0 ** (-torch.arange(0, 32, 2).double() / 32))
    assert error(exact[0, :, :16], by_hand) <= 2e-4
    assert (exact.bfloat16().float() - exact).abs().max() <= 0.004

    from clearhead.forward import Pass, Places
    from clearhead.nn.rotary import rotary_tables
    from clearhead.ops.masks import Positions

    positions = Positions(span=(0, 2048))
    p = Pass(positions=positions, places=Places(positions, 2048, torch.device("cpu")))
    cos, _ = rotary_tables(RotaryConfig(), 32, p, torch.bfloat16)
    assert cos.dtype == torch.bfloat16
    assert (cos[:, 0].float() - exact).abs().max() <= 0.004


def test_h04_llama3_and_dynamic_numbers():
    llama3 = RotaryConfig(scaling=Llama3Scaling(factor=8.0, low=1.0, high=4.0, trained_length=64))
    assert close(frequencies(llama3, 8, 500)[0], torch.tensor([1, 0.01304226, 0.00125, 0.000125]))
    dynamic = RotaryConfig(scaling=DynamicScaling(factor=4.0, trained_length=64))
    for length in (1, 10, 64):
        assert close(frequencies(dynamic, 8, length)[0], torch.tensor([1, 0.1, 0.01, 0.001]))
    longer = torch.tensor([1, 0.05848035, 0.00341995, 0.0002])
    assert torch.allclose(frequencies(dynamic, 8, 128)[0], longer, rtol=1e-5)
    both, _ = frequencies(dynamic, 8, torch.tensor([64, 128]))
    assert torch.allclose(both[1], longer, rtol=1e-5)
    assert torch.allclose(both[0], torch.tensor([1, 0.1, 0.01, 0.001]), rtol=1e-5)


def test_h04_scaling_by_length_starts_beyond_the_trained_length():
    dynamic = RotaryConfig(scaling=DynamicScaling(factor=4.0, trained_length=64))
    assert same_frequencies(dynamic, 3, 64)
    assert not same_frequencies(dynamic, 64, 65)
    assert not same_frequencies(dynamic, 65, 66)
    long = RotaryConfig(scaling=LongRopeScaling(short=(1.0,) * 4, long=(2.0,) * 4, trained_length=64, factor=2.0))
    assert same_frequencies(long, 65, 66)
    assert not same_frequencies(long, torch.tensor([3, 64]), torch.tensor([4, 65]))


@pytest.mark.parametrize("name", list(llama.SCALINGS))
@pytest.mark.parametrize("length", [8, 40])
def test_every_scaling_equals_the_published_code(name, length):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    from clearhead.families import FAMILIES

    parameters = {"rope_theta": 10000.0, **llama.SCALINGS[name]}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, max_position_embeddings=16, rope_parameters=dict(parameters)
    )
    theirs, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"), seq_len=length)
    ours = FAMILIES["llama"].read(config.to_dict(), "config").stack.blocks[0].mixer.op
    got, gain = frequencies(ours.positions, 16, length)
    assert torch.allclose(got, theirs, rtol=1e-6)
    assert gain == pytest.approx(factor)
