"""State-space mixers in a model: against their formulas, with padding, documents, states and taps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ConvConfig,
    EmbedConfig,
    HeadsConfig,
    Mamba2Config,
    MambaConfig,
    NormConfig,
    RotaryConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer
from clearhead.nn.mamba import Mamba
from clearhead.nn.mamba2 import Mamba2
from clearhead.ops.masks import SameDocument, Window
from clearhead.taps import Chain, Editor, Recorder
from tests.nn.test_block import a_pass, filled
from tests.oracles import error
from tests.tiny import lively

NORM = NormConfig()
OPS: dict[str, Any] = {
    "channels": MambaConfig(d_inner=48, d_state=5, dt_rank=3, inner_norm=NORM),
    "heads": Mamba2Config(n_heads=6, d_head=8, d_state=5, n_groups=2, norm=NORM, dt_limit=(0.2, 1.5)),
}
ATTENTION = AttentionConfig(n_heads=4, n_kv_heads=2, d_head=8, positions=RotaryConfig())
KINDS = pytest.mark.parametrize("kind", list(OPS))
N = 20


def model(kind: str, hybrid: bool = True) -> Transformer:
    """Two scans, with attention between them."""
    ops = (OPS[kind], ATTENTION, OPS[kind]) if hybrid else (OPS[kind],) * 2
    stack = StackConfig(
        embed=EmbedConfig(front=TokensConfig(vocab_size=50)),
        blocks=tuple(BlockConfig(mixer=SublayerConfig(op=op, pre=NORM)) for op in ops),
        norm=NORM,
    )
    made = Transformer(TransformerConfig(d_model=32, decoder=stack, heads=HeadsConfig(tokens=TokenHeadConfig())))
    return lively(made).double()


def tokens(n_rows: int = 3) -> torch.Tensor:
    return torch.randint(50, (n_rows, N))


# ---- the formulas


def conv_by_hand(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.conv1d(x.mT, m.conv.weight, m.conv.bias, padding=m.conv.config.width - 1, groups=x.shape[-1])
    return F.silu(y[..., : x.shape[1]].mT)


def test_mamba_is_the_formula() -> None:
    m = filled(Mamba(12, MambaConfig(d_inner=20, d_state=4, dt_rank=3, bias=True)))
    x = torch.randn(2, 7, 12).double()
    u, z = (x @ m.in_proj.weight.T + m.in_proj.bias).chunk(2, -1)
    u = conv_by_hand(m, u)
    dt, B, C = (u @ m.x_proj.weight.T).split([3, 4, 4], -1)
    dt = F.softplus(dt @ m.dt_proj.weight.T + m.dt_proj.bias)
    h, ys = torch.zeros(2, 20, 4).double(), []
    for t in range(7):
        h = torch.exp(-dt[:, t, :, None] * torch.exp(m.A_log)) * h + (dt * u)[:, t, :, None] * B[:, t, None]
        ys.append((h * C[:, t, None]).sum(-1))
    y = (torch.stack(ys, 1) + m.D * u) * F.silu(z)
    assert error(m(x, a_pass(7)), y @ m.out_proj.weight.T + m.out_proj.bias) <= 1e-12


@pytest.mark.parametrize("norm", [NORM, NormConfig(kind="layer", bias=True, offset=1.0)])
def test_mamba2_is_the_formula(norm: NormConfig) -> None:
    c = Mamba2Config(
        n_heads=4, d_head=5, d_state=3, n_groups=2, norm=norm, dt_limit=(0.3, 0.8), conv=ConvConfig(width=3)
    )
    m = filled(Mamba2(12, c))
    x = torch.randn(2, 7, 12).double()
    z, mixed, dt = (x @ m.in_proj.weight.T).split([20, 32, 4], -1)
    u, B, C = conv_by_hand(m, mixed).split([20, 6, 6], -1)
    dt = F.softplus(dt + m.dt_bias).clamp(0.3, 0.8)
    ys = torch.zeros(2, 7, 20).double()
    for i in range(4):
        own, g = slice(5 * i, 5 * i + 5), slice(3 * (i // 2), 3 * (i // 2) + 3)
        h = torch.zeros(2, 5, 3).double()
        for t in range(7):
            kept = torch.exp(-dt[:, t, i] * torch.exp(m.A_log[i]))[:, None, None] * h
            h = kept + dt[:, t, i, None, None] * u[:, t, own, None] * B[:, t, None, g]
            ys[:, t, own] = (h * C[:, t, None, g]).sum(-1) + m.D[i] * u[:, t, own]
    gated = (ys * F.silu(z)).unflatten(-1, (2, 10))
    if norm.kind == "layer":
        gated = gated - gated.mean(-1, keepdim=True)
    unit = (gated / (gated.square().mean(-1, keepdim=True) + norm.eps).sqrt()).flatten(-2)
    y = unit * (m.norm.weight + norm.offset) + (m.norm.bias if norm.bias else 0)
    assert error(m(x, a_pass(7)), y @ m.out_proj.weight.T) <= 1e-12


@KINDS
def test_where_training_starts(kind: str) -> None:
    """Decays, steps and skips as the papers draw them; nothing is left unset."""
    mixer = Transformer(model(kind).config).layers[0].mixer
    assert torch.equal(mixer.D, torch.ones_like(mixer.D))
    bias = mixer.dt_proj.bias if kind == "channels" else mixer.dt_bias
    dt = F.softplus(bias)
    assert dt.min() > 0.00099 and dt.max() < 0.101
    decays = mixer.A_log.exp()
    if kind == "channels":
        assert error(decays, torch.arange(1.0, 6.0).expand(48, 5)) <= 1e-5
    else:
        assert decays.min() >= 1 and decays.max() <= 16


# ---- padding and documents


@KINDS
def test_padding_anywhere_and_rows_with_nothing(kind: str) -> None:
    m, x = model(kind), tokens(5)
    present = torch.ones(5, N, dtype=torch.bool)
    present[0, :7] = present[1, 12:] = present[2, 5:9] = present[2, 0] = False
    present[3] = False
    out = m(x, present=present)
    assert out.isfinite().all()
    for b in (0, 1, 2, 4):
        assert error(out[b, present[b]], m(x[b : b + 1, present[b]])[0]) <= 1e-12


@KINDS
def test_left_padding_in_a_batch_of_one(kind: str) -> None:
    """Case H14: [5, 6, 7] alone, behind padding, and behind padding beside a full row."""
    m = model(kind, hybrid=False)
    alone = m(torch.tensor([[5, 6, 7]]))[:, -1]
    present = torch.tensor([[False, False, True, True, True]])
    padded = m(torch.tensor([[0, 0, 5, 6, 7]]), present=present)[:, -1]
    two = torch.cat([present, torch.ones(1, 5, dtype=torch.bool)])
    beside = m(torch.tensor([[0, 0, 5, 6, 7], [1, 2, 3, 4, 5]]), present=two)[:1, -1]
    assert error(padded, alone) <= 1e-12
    assert error(beside, alone) <= 1e-12
    assert error(m(torch.tensor([[0, 0, 5, 6, 7]]))[:, -1], alone) > 1e-3  # unsaid, it is text


@KINDS
def test_documents_restart(kind: str) -> None:
    m, x = model(kind), tokens(2)
    documents = torch.tensor([[0] * 6 + [1] * 1 + [2] * 13, [3] * 11 + [0] * 9])
    out = m(x, documents=documents)
    for b, first, stop in ((0, 0, 6), (0, 6, 7), (0, 7, N), (1, 0, 11), (1, 11, N)):
        assert error(out[b, first:stop], m(x[b : b + 1, first:stop])[0]) <= 1e-12


@KINDS
def test_documents_with_padding_between_and_within(kind: str) -> None:
    m, x = model(kind), tokens(1)
    documents = torch.tensor([[0] * 8 + [1] * 12])
    present = torch.ones(1, N, dtype=torch.bool)
    present[0, [0, 3, 7, 8, 15]] = False
    out = m(x, documents=documents, present=present)
    for d in (0, 1):
        own = present[0] & (documents[0] == d)
        assert error(out[0, own], m(x[:, own])[0]) <= 1e-12


@KINDS
def test_a_mask_is_refused(kind: str) -> None:
    m, x = model(kind), tokens(1)
    for mask in (Window(3), SameDocument(torch.zeros(1, N, dtype=torch.long))):
        with pytest.raises(ClearheadError, match=r"state-space layer .* documents="):
            m(x, mask=mask)
    with pytest.raises(ClearheadError, match="state-space layer"):
        m(x, mask=Window(3), documents=torch.zeros(1, N, dtype=torch.long))


# ---- states


@KINDS
def test_every_split_and_step(kind: str) -> None:
    """Limits of the step size hold in a single step too, and the state goes on in chunks of any size."""
    m, x = model(kind), tokens()
    whole = m(x)
    for cuts in ([N // 2], list(range(1, N)), [1, 2, 9, 10, 17], [N - 1]):
        state, start = m.new_state(), 0
        for stop in (*cuts, N):
            assert error(m(x[:, start:stop], state=state), whole[:, start:stop]) <= 1e-12
            start = stop


@KINDS
def test_a_state_is_cut_only_to_what_it_has(kind: str) -> None:
    m, x = model(kind), tokens()
    state = m.new_state()
    m(x[:, :5], state=state)
    m(x[:, 5:12], state=state)
    assert [n for n in range(13) if state.can_truncate(n)] == [0, 5, 12]
    with pytest.raises(ClearheadError, match="does not keep every token"):
        state.truncate(7)
    state.truncate(5)
    assert [n for n in range(6) if state.can_truncate(n)] == [0, 5]
    assert error(m(x[:, 5:], state=state), m(x)[:, 5:]) <= 1e-12
    state.truncate(0)
    assert error(m(x, state=state), m(x)) <= 1e-12


@KINDS
def test_a_failed_pass_is_taken_back(kind: str) -> None:
    m, x = model(kind), tokens()
    state = m.new_state()
    m(x[:, :8], state=state)

    def fail(value: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("on purpose")

    for at in ("layers.0.mixer.delta", "layers.2.mixer.out"):
        with pytest.raises(RuntimeError, match="on purpose"):
            m(x[:, 8:11], state=state, taps=Editor({at: fail}))
        assert state.length == 8
    assert error(m(x[:, 8:], state=state), m(x)[:, 8:]) <= 1e-12


@KINDS
def test_rows_are_chosen_and_the_memory_does_not_grow(kind: str) -> None:
    m, x = model(kind, hybrid=False), tokens()
    state = m.new_state()
    m(x[:, :6], state=state)
    small = state.nbytes
    m(x[:, 6:9], state=state)
    assert state.nbytes == small > 0
    rows = [2, 0, 2]
    state.select(rows)
    assert error(m(x[rows, 9:], state=state), m(x)[rows, 9:]) <= 1e-12


@KINDS
def test_what_inference_kept_can_be_trained_on(kind: str) -> None:
    m, x = model(kind), tokens()
    state = m.new_state()
    with torch.inference_mode():
        m(x[:, :6], state=state)
    m(x[:, 6:], state=state).sum().backward()
    assert all(p.grad is not None for p in m.parameters())


@KINDS
def test_gradients_flow_through_a_state(kind: str) -> None:
    m, x = model(kind), tokens()
    m(x)[:, -1].sum().backward()
    whole = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    state = m.new_state()
    m(x[:, :7], state=state)
    m(x[:, 7:], state=state)[:, -1].sum().backward()
    for a, b in zip((p.grad for p in m.parameters()), whole, strict=True):
        assert error(a, b) <= 1e-12


# ---- taps


@KINDS
@pytest.mark.parametrize("n_tokens", [1, N])
def test_looking_changes_no_bit(kind: str, n_tokens: int) -> None:
    m, x = model(kind), tokens()[:, :n_tokens]
    recorder = Recorder([f"layers.0.mixer.{name}" for name in ("delta", "state", "out")])
    assert torch.equal(m(x, taps=recorder), m(x))
    mixer, seen = m.layers[0].mixer, recorder.values
    shape = (48, 5) if kind == "channels" else (6, 8, 5)
    assert seen["layers.0.mixer.state"].shape == (3, n_tokens, *shape)
    assert seen["layers.0.mixer.delta"].shape == (3, n_tokens, mixer.D.shape[0])
    memory = m.new_state()
    m(x, state=memory)
    kept = memory.at("layers.0.mixer").tensors()["state"]
    assert error(seen["layers.0.mixer.state"][:, -1], kept) <= 1e-12


@KINDS
def test_editing_what_is_remembered(kind: str) -> None:
    m, x = model(kind), tokens()
    same = m(x, taps=Editor({"layers.0.mixer.state": lambda h: h}))
    assert error(same, m(x)) <= 1e-12
    recorder = Recorder(["layers.0.mixer.out"])
    m(x, taps=recorder)
    without = m(x, taps=Editor({"layers.0.mixer.state": torch.zeros_like}))
    assert error(without, m(x)) > 1e-3
    # What is kept is what was put there: the next pass goes on from it.
    state = m.new_state()
    m(x, state=state, taps=Editor({"layers.0.mixer.state": torch.zeros_like}))
    assert not state.at("layers.0.mixer").tensors()["state"].any()


@KINDS
def test_a_step_of_zero_is_a_token_not_read(kind: str) -> None:
    """The step size is what lets a token in: at 0 the state passes it by."""
    m, x = model(kind, hybrid=False), tokens(1)

    def skip(delta: torch.Tensor) -> torch.Tensor:
        delta = delta.clone()
        delta[:, 4:9] = 0.0
        return delta

    recorder = Recorder(["layers.0.mixer.state"])
    m(x, taps=Chain(Editor({"layers.0.mixer.delta": skip}), recorder))
    states = recorder.values["layers.0.mixer.state"]
    assert error(states[:, 8], states[:, 3]) <= 1e-12
