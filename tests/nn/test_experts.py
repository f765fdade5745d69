"""The module of experts: its router, what can be seen and edited of it, its first weights, its balance loss."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ClampedGate,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    HeadsConfig,
    NormConfig,
    RouterConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.forward import Pass, Places
from clearhead.model.balance import active_parameters, balance_term, router_sites
from clearhead.model.transformer import Transformer
from clearhead.nn.experts import Experts
from clearhead.nn.feed_forward import FeedForward
from clearhead.ops.experts import experts_loop
from clearhead.ops.masks import Positions
from clearhead.ops.routing import balance_loss
from clearhead.taps import Editor, Recorder, resolve
from tests.oracles import error

D, WIDTH = 16, 12
PLAIN = FeedForwardConfig(d_ff=WIDTH)


def experts(**changes):
    config = ExpertsConfig(**{"n_experts": 6, "n_chosen": 2, "expert": PLAIN, **changes})
    module = Experts(D, config).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    module.path = "ffn"
    if module.shared is not None:
        module.shared.path = "ffn.shared"
    return module


def a_pass(taps=None, n=7):
    positions = Positions(span=(0, n))
    return Pass(positions=positions, places=Places(positions, n, torch.device("cpu")), taps=taps)


def by_hand(m, x_BTD):
    """Scores, choice and weights token by token, then the loop."""
    r, c = m.config.router, m.config
    x = x_BTD.flatten(0, 1)
    logits = F.linear(x, m.router.weight, m.router.bias)
    chosen, weights = [], []
    for row in logits:
        p = {"softmax": row.softmax(0), "sigmoid": row.sigmoid(), "topk_softmax": row}[r.score]
        by = p if m.router.correction is None else p + m.router.correction
        if r.n_groups > 1:
            groups = by.view(r.n_groups, -1)
            best = groups.sort(descending=True).values[:, :2].sum(1).argsort(descending=True)[: r.n_chosen_groups]
            hidden = torch.ones(r.n_groups, dtype=torch.bool)
            hidden[best] = False
            by = groups.masked_fill(hidden[:, None], float("-inf")).flatten()
        who = by.argsort(descending=True)[: c.n_chosen]
        w = p[who].softmax(0) if r.score == "topk_softmax" else p[who]
        weights.append(r.scale * (w / w.sum() if r.renormalise else w))
        chosen.append(who)
    y = experts_loop(x, torch.stack(chosen), torch.stack(weights), m.weights(), m._inner).view_as(x_BTD)
    if m.shared is not None:
        s = m.shared
        y = y + s.down_proj(F.silu(s.gate_proj(x_BTD)) * s.up_proj(x_BTD))
    return y


ROUTERS = {
    "softmax": {},
    "renormalised": {"renormalise": True, "scale": 1.5},
    "best_first": {"score": "topk_softmax", "bias": True},
    "sigmoid": {"score": "sigmoid", "renormalise": True, "correction": True, "scale": 2.5},
    "groups": {"score": "sigmoid", "correction": True, "n_groups": 3, "n_chosen_groups": 2},
}


@pytest.mark.parametrize("shared", [None, FeedForwardConfig(d_ff=20)])
@pytest.mark.parametrize("router", list(ROUTERS))
def test_against_the_formula(router, shared):
    m = experts(router=RouterConfig(**ROUTERS[router]), shared=shared)
    x = torch.randn(2, 7, D).double()
    assert error(m(x, a_pass()), by_hand(m, x)) <= 1e-12


def test_clamped_gates_biases_and_no_gate():
    gate = ClampedGate(limit=0.5, alpha=1.7)
    x = torch.randn(1, 7, D).double()
    for expert in (
        FeedForwardConfig(d_ff=WIDTH, activation=gate, bias=True),
        FeedForwardConfig(d_ff=WIDTH, activation="relu", gated=False, bias=True),
    ):
        m = experts(expert=expert)
        assert error(m(x, a_pass()), by_hand(m, x)) <= 1e-12
    one = FeedForward(D, FeedForwardConfig(d_ff=WIDTH, activation=gate)).double()
    g, u = one.gate_proj(x).clamp(max=0.5), one.up_proj(x).clamp(-0.5, 0.5)
    assert error(one(x, a_pass()), one.down_proj((u + 1) * g * torch.sigmoid(1.7 * g))) <= 1e-12


def test_what_is_seen_and_what_an_edit_does():
    m, x = experts(shared=PLAIN), torch.randn(2, 7, D).double()
    recorder = Recorder(["ffn.router_logits", "ffn.chosen", "ffn.shared.post", "ffn.shared.out"])
    y = m(x, a_pass(recorder))
    assert torch.equal(y, m(x, a_pass()))
    seen = recorder.values
    assert seen["ffn.router_logits"].shape == (2, 7, 6)
    assert torch.equal(seen["ffn.chosen"], seen["ffn.router_logits"].topk(2).indices)
    assert set(seen) == recorder.addresses
    # Logits that leave no choice: every token to the experts 4 and 5.
    wanted = torch.tensor([0.0, 0.0, 0.0, 0.0, 9.0, 8.0]).double().expand(2, 7, 6)
    forced = m(x, a_pass(Editor({"ffn.router_logits": lambda _: wanted})))
    w = wanted[0, 0].softmax(0)[4:].expand(14, 2)
    routed = experts_loop(x.flatten(0, 1), torch.tensor([[4, 5]]).expand(14, 2), w, m.weights(), m._inner)
    assert error(forced, routed.view_as(x) + m.shared(x, a_pass())) <= 1e-12
    # A choice that is edited is weighed by its own scores.
    first = m(x, a_pass(Editor({"ffn.chosen": torch.zeros_like})))
    assert not torch.equal(first, y)


def test_a_router_computes_in_float32():
    m = experts(router=RouterConfig(score="sigmoid")).to(torch.bfloat16)
    x = torch.randn(1, 7, D).to(torch.bfloat16)
    recorder = Recorder(["ffn.router_logits"])
    assert m(x, a_pass(recorder)).dtype == torch.bfloat16
    logits = recorder.values["ffn.router_logits"]
    assert logits.dtype == torch.float32
    assert error(logits, F.linear(x.double(), m.router.weight.double())) <= 1e-6


def test_experts_that_groups_close_are_refused():
    with pytest.raises(ClearheadError, match="3 of the 2 experts of its groups"):
        experts(n_chosen=3, router=RouterConfig(score="sigmoid", n_groups=3, n_chosen_groups=1))


def test_dropout_is_only_for_training():
    m = experts(expert=FeedForwardConfig(d_ff=WIDTH, dropout=0.5))
    x = torch.randn(1, 7, D).double()
    m.eval()
    assert torch.equal(m(x, a_pass()), m(x, a_pass()))
    m.train()
    assert not torch.equal(m(x, a_pass()), m(x, a_pass()))


# ---- in a model


def a_model(balance=0.01):
    norm = NormConfig()
    attention = SublayerConfig(op=AttentionConfig(n_heads=2, n_kv_heads=2, d_head=8), pre=norm)
    sparse = ExpertsConfig(
        n_experts=4,
        n_chosen=2,
        expert=FeedForwardConfig(d_ff=WIDTH, bias=True),
        router=RouterConfig(balance=balance, bias=True),
    )
    blocks = [BlockConfig(mixer=attention, ffn=SublayerConfig(op=op, pre=norm)) for op in (sparse, PLAIN, sparse)]
    stack = StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=50)), blocks=tuple(blocks), norm=norm)
    config = TransformerConfig(d_model=D, decoder=stack, heads=HeadsConfig(tokens=TokenHeadConfig()))
    return Transformer(config)


def test_new_experts_are_drawn_as_other_matrices_are():
    torch.manual_seed(0)
    m = a_model().layers[0].ffn
    assert float(m.up_proj.detach().std()) == pytest.approx(0.02, rel=0.2)
    assert float(m.gate_proj.detach().std()) == pytest.approx(0.02, rel=0.2)
    assert float(m.router.weight.detach().std()) == pytest.approx(0.02, rel=0.4)
    assert float(m.down_proj.detach().std()) == pytest.approx(0.02 / 6**0.5, rel=0.2)  # six sub-layers write
    assert not m.up_bias.any() and not m.down_bias.any() and not m.router.bias.any()


def test_the_balance_term_is_pooled_weighted_and_trains_the_routers():
    model, tokens = a_model(), torch.randint(50, (2, 9))
    sites = router_sites(model)
    assert sites == ["layers.0.ffn.router_logits", "layers.2.ffn.router_logits"] == resolve(model, ["*.router_logits"])
    present = torch.ones(2, 9, dtype=torch.bool)
    present[1, 5:] = False
    recorder = Recorder(sites, keep_graph=True)
    model(tokens, present=present, taps=recorder)
    term = balance_term(model, recorder.values, present)
    pooled = [recorder.values[site] for site in sites]
    assert error(term, 0.01 * balance_loss(pooled, 2, present)) <= 1e-7
    term.backward()
    for layer in (0, 2):
        assert model.layers[layer].ffn.router.weight.grad.abs().sum() > 0
    assert float(balance_term(a_model(balance=0.0), {})) == 0.0


def test_balance_of_cached_steps():
    model = a_model()
    state = model.new_state()
    for step in (6, 1, 1):
        recorder = Recorder(router_sites(model))
        present = torch.ones(2, step, dtype=torch.bool)
        model(torch.randint(50, (2, step)), state=state, present=present, taps=recorder)
        assert balance_term(model, recorder.values, present).isfinite()


def test_active_parameters():
    model = a_model()
    per_expert = 3 * D * WIDTH + 2 * WIDTH + D
    assert active_parameters(model) == sum(p.numel() for p in model.parameters()) - 2 * 2 * per_expert
