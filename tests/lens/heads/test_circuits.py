"""Circuits of weights against the whole D x D and V x V matrices in float64, and against what a pass computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import clearhead
from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.heads.circuits import Composition, composition, copying, matrices, positive_share
from clearhead.lens.heads.parts import parts
from tests import tiny
from tests.lens.conftest import VOCABULARY, make_model
from tests.oracles import TOLERANCE, error

F32 = TOLERANCE[torch.float32]


def loaded(family: str, folder):
    """A tiny model of a family, with our code."""
    tiny.make(family).save_pretrained(folder)
    return clearhead.load(folder)


def whole(model, layer: int, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """W_Q^T W_K and W_O W_V of one head, the norm's scale within, written out in float64."""
    op, group = model.layers[layer].mixer, head // (4 // model.layers[layer].mixer.config.n_kv_heads)
    scale = model.layers[layer].mixer_norm.pre.weight.double()
    q, k, v = (layer.weight.double() * scale for layer in (op.q_proj, op.k_proj, op.v_proj))
    o = op.o_proj.weight.double()
    mine, shared = slice(8 * head, 8 * head + 8), slice(8 * group, 8 * group + 8)
    return q[mine].T @ k[shared], o[:, mine] @ v[shared]


@torch.no_grad()
def test_copying_is_that_of_the_whole_circuit() -> None:
    """V x V, eigenvalues and all."""
    model = make_model()
    found = copying(parts(model)[0])
    embed, head = model.embed.tokens.weight.double(), model.unembedding.double()
    centred = (head - head.mean(0)) * model.norm.weight.double()
    for (layer, number), one in found.items():
        circuit = centred @ whole(model, layer, number)[1] @ embed.T
        assert circuit.shape == (VOCABULARY, VOCABULARY)
        assert abs(one.score - float(positive_share(torch.linalg.eigvals(circuit)))) <= 1e-4
        assert -1 <= one.score <= 1


def test_a_head_that_hands_tokens_on_copies_and_one_that_turns_them_round_does_not() -> None:
    model = make_model(n_kv_heads=4)
    op = model.layers[0].mixer
    with torch.no_grad():
        # W_O W_V of head 0 is a projection, that of head 1 the same with a minus.
        for head, sign in ((0, 1.0), (1, -1.0)):
            rows = slice(8 * head, 8 * head + 8)
            op.o_proj.weight[:, rows] = sign * op.v_proj.weight[rows].T
    model.layers[0].mixer_norm.pre.weight.data.fill_(1.0)
    model.norm.weight.data.fill_(1.0)
    found = copying(parts(model)[0])
    assert found[0, 0].score > 0.95
    assert found[0, 1].score < -0.95
    assert abs(found[0, 0].control) < 0.5


@torch.no_grad()
def test_composition_is_that_of_the_whole_matrices() -> None:
    model = make_model()
    found = composition(parts(model)[0])
    assert found.chance == pytest.approx(32**-0.5)
    for later in range(4):
        qk, ov = whole(model, 1, later)
        for earlier in range(4):
            written = whole(model, 0, earlier)[1]
            wanted = {"q": qk.T @ written, "k": qk @ written, "v": ov @ written}
            for way, product in wanted.items():
                factors = (ov if way == "v" else qk).norm() * written.norm()
                share = found.shares[way][1, 0][later, earlier].double()
                assert error(share, product.norm() / factors) <= F32
    assert found.strongest(0, 0) == ()


def test_the_strongest_are_those_well_above_what_is_typical_of_the_reader() -> None:
    """Median 0.02 and 0.3 for the keys and queries of head 1; two unrelated matrices would have 0.1."""
    keys = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.01, 0.02, 0.03, 0.09]])
    queries = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.3, 0.3, 0.15, 0.3]])
    found = Composition({"q": {(1, 0): queries}, "k": {(1, 0): keys}, "v": {}}, chance=0.1)
    assert [(reads.way, reads.head, round(reads.times, 3)) for reads in found.strongest(1, 1, most=2)] == [
        ("k", 3, 4.5),
        ("q", 0, 3.0),
    ]
    assert len(found.strongest(1, 1, most=9)) == 4
    assert found.strongest(1, 0) == ()


@pytest.mark.parametrize("family", ["gemma3_text", "olmo2", "deepseek_v3", "qwen3", "gpt2"])
def test_matrices_make_what_a_pass_makes(family, tmp_path) -> None:
    """What enters the product is the matrices times the stream, but for its length, and for what biases add."""
    model = loaded(family, tmp_path)
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            parameter.data.zero_()
    tokens = torch.randint(5, 60, (1, 6), generator=torch.Generator().manual_seed(1))
    for layer, block in enumerate(model.layers):
        at = f"layers.{layer}.mixer"
        seen = look(model, tokens, f"layers.{layer}.resid_pre", f"{at}.q_raw", f"{at}.k_raw", f"{at}.v")
        m, x_TD = matrices(block), seen[f"layers.{layer}.resid_pre"][0]
        pre = block.mixer_norm.pre
        if pre is not None and pre.config.kind == "layer":
            x_TD = x_TD - x_TD.mean(-1, keepdim=True)
        for name, matrix_HKD in (("q_raw", m.q_HKD), ("k_raw", m.k_HKD), ("v", m.v_HVD)):
            there_GTK = seen[f"{at}.{name}"][0]
            here_HTK = torch.einsum("hkd,td->htk", matrix_HKD, x_TD)
            there_HTK = there_GTK.repeat_interleave(len(here_HTK) // len(there_GTK), 0)
            # In latent attention a norm divides the first part of a key, and not the second.
            widths = getattr(block.mixer.config, "widths", None)
            cut = widths.nope if widths is not None and name == "k_raw" else here_HTK.shape[-1]
            for part in (slice(cut), slice(cut, None))[: 1 if cut == here_HTK.shape[-1] else 2]:
                alike = F.cosine_similarity(here_HTK[..., part], there_HTK[..., part], dim=-1)
                assert error(alike, torch.ones_like(alike)) <= F32, (layer, name)


@pytest.mark.parametrize(("family", "words"), [("bert", "more than one matrix"), ("t5", "no head reads tokens")])
def test_copying_says_why_it_can_not_be_told(family, words, tmp_path) -> None:
    with pytest.raises(ClearheadError, match=words):
        copying(parts(loaded(family, tmp_path))[0])
