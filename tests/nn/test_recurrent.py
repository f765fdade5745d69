"""Recurrent mixers in a model: what looking and editing do, gradients a step, states, padding and sources."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import (
    AdditiveAttentionConfig,
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    HeadsConfig,
    NormConfig,
    RecurrentConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer
from clearhead.nn.recurrent import Cell
from clearhead.ops.masks import Window
from clearhead.taps import Chain, Editor, Recorder, catalogue
from tests.oracles import error
from tests.tiny import lively

CELLS = ("simple", "lstm", "lstm_1997", "gru")
SOURCES: dict[str, Any] = {"none": None, "last": "last", "additive": AdditiveAttentionConfig(d_attention=7)}
MODELS = pytest.mark.parametrize(("cell", "source"), [(cell, source) for cell in CELLS for source in SOURCES])
N, S, WORDS = 11, 6, 30


def stack(op: Any, n: int = 1, residual: bool = False) -> StackConfig:
    block = BlockConfig(mixer=SublayerConfig(op=op, residual=residual))
    return StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=WORDS)), blocks=(block,) * n)


def model(cell: Any, source: str = "none", d_hidden: int = 9, n: int = 1, residual: bool = False) -> Transformer:
    """A decoder, beside an encoder that reads both ways where there is a source."""
    op = RecurrentConfig(cell=cell, d_hidden=d_hidden, source=SOURCES[source])
    encoder = None if source == "none" else stack(RecurrentConfig(cell=cell, d_hidden=5, both_ways=True))
    config = TransformerConfig(
        d_model=12,
        encoder=encoder,
        decoder=stack(op, n, residual),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=False)),
    )
    return lively(Transformer(config)).double()  # type: ignore[return-value]


def asked(source: str, rows: int = 3) -> tuple[Tensor, dict[str, Tensor]]:
    torch.manual_seed(2)
    tokens = torch.randint(WORDS, (rows, N))
    if source == "none":
        return tokens, {}
    there = torch.ones(rows, S, dtype=torch.bool)
    there[0, 4:] = there[-1, :2] = False
    return tokens, {"source": torch.randint(WORDS, (rows, S)), "source_present": there}


def sites(m: Transformer) -> list[str]:
    return [name for name in catalogue(m) if name.startswith("layers.0.mixer.")]


# ---- what it computes


@pytest.mark.parametrize("cell", CELLS)
def test_where_training_starts(cell: Any) -> None:
    """Every gate's recurrent matrix orthogonal, times the gain; the forget gate open by its bias, and no other."""
    found = Cell(4, RecurrentConfig(cell=cell, d_hidden=8, gain=0.9, forget_bias=3.0)).first_values()
    for matrix in found["h_proj.weight"].split(8):
        assert error(matrix @ matrix.T, 0.81 * torch.eye(8)) <= 1e-5
    bias = found["x_proj.bias"].unflatten(0, (-1, 8))
    expected = torch.zeros_like(bias)
    if cell == "lstm":
        expected[1] = 3.0
    assert torch.equal(bias, expected) and not found["h_proj.bias"].any()


def test_one_vector_by_hand() -> None:
    """RNNenc: the encoder's last vector starts a simple decoder and is given to it at every step (Cho 2014)."""
    m = model("simple", "last", d_hidden=12)
    tokens, inputs = asked("last")
    mixer, out = m.layers[0].mixer, m(tokens, **inputs)
    encoded = m.encode(inputs["source"], source_present=inputs["source_present"])
    for b, last in enumerate((3, 5, 5)):
        c = encoded[b, last]
        h = torch.tanh(mixer.source.start_proj(c))
        for t in range(N):
            x = torch.cat([m.embed.tokens.weight[tokens[b, t]], c])
            h = torch.tanh(mixer.cell.x_proj(x) + mixer.cell.h_proj(h))
            assert error(m.head.weight @ h, out[b, t]) <= 1e-12


def test_looking_back_by_hand() -> None:
    """RNNsearch: c_i is a mix by softmax of v^T tanh(W s_{i-1} + U h_j) and enters the step (Bahdanau 2014)."""
    m = model("simple", "additive", d_hidden=12)
    tokens, inputs = asked("additive")
    recorder = Recorder(["layers.0.mixer.alignment"])
    mixer, out = m.layers[0].mixer, m(tokens, **inputs, taps=recorder)
    alignment = recorder.values["layers.0.mixer.alignment"]
    assert error(alignment.sum(-1), torch.ones(3, N)) <= 1e-12
    encoded = m.encode(inputs["source"], source_present=inputs["source_present"])
    for b, there in enumerate((slice(0, 4), slice(0, 6), slice(2, 6))):
        h_SD = encoded[b, there]
        s = torch.tanh(mixer.source.start_proj(h_SD[0]))
        for t in range(N):
            e = torch.tanh(mixer.source.query_proj(s) + mixer.source.key_proj(h_SD)) @ mixer.source.v
            a = torch.softmax(e, dim=0)
            assert error(alignment[b, t, there], a) <= 1e-12
            x = torch.cat([m.embed.tokens.weight[tokens[b, t]], a @ h_SD])
            s = torch.tanh(mixer.cell.x_proj(x) + mixer.cell.h_proj(s))
            assert error(m.head.weight @ s, out[b, t]) <= 1e-12


def test_a_residual_network_adds() -> None:
    tokens = asked("none")[0]
    plain, added = (model("gru", d_hidden=12, residual=residual) for residual in (False, True))
    hidden = Recorder(["layers.0.mixer.out", "layers.0.resid_post", "embed"])
    added(tokens, taps=hidden)
    out, after, before = (hidden.values[k] for k in ("layers.0.mixer.out", "layers.0.resid_post", "embed"))
    assert error(after, before + out) <= 1e-12
    plain(tokens, taps=hidden)
    assert torch.equal(hidden.values["layers.0.resid_post"], hidden.values["layers.0.mixer.out"])


@pytest.mark.parametrize("cell", CELLS)
def test_both_ways_reads_each_text_from_its_own_end(cell: Any) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(d_model=12, encoder=stack(RecurrentConfig(cell=cell, d_hidden=6, both_ways=True), 2))
    m = Transformer(config).double()
    tokens = torch.randint(WORDS, (4, N))
    present = torch.ones(4, N, dtype=torch.bool)
    present[0, 5:] = present[1, :4] = present[2, [0, 3, 4, 9]] = False
    out = m(tokens, present=present)
    for b in range(4):
        assert error(out[b, present[b]], m(tokens[b : b + 1, present[b]])[0]) <= 1e-12
    documents = torch.tensor([[0] * 4 + [1] * 7] * 4)
    out = m(tokens, documents=documents)
    assert error(out, torch.cat([m(tokens[:, :4]), m(tokens[:, 4:])], dim=1)) <= 1e-12
    # The first hidden vector knows of the last token, and the last of the first.
    assert error(m(torch.cat([tokens[:, :-1], tokens[:, -1:] ^ 1], dim=1))[:, 0], m(tokens)[:, 0]) > 1e-6


# ---- padding, documents, states


@MODELS
def test_padding_anywhere(cell: Any, source: str) -> None:
    m, (tokens, inputs) = model(cell, source), asked(source)
    present = torch.ones(3, N, dtype=torch.bool)
    present[0, :4] = present[1, 7:] = present[2, [0, 5, 6]] = False
    out = m(tokens, present=present, **inputs)
    for b in range(3):
        own = {name: value[b : b + 1] for name, value in inputs.items()}
        assert error(out[b, present[b]], m(tokens[b : b + 1, present[b]], **own)[0]) <= 1e-12


@pytest.mark.parametrize("cell", CELLS)
def test_documents_restart(cell: Any) -> None:
    m, tokens = model(cell), asked("none")[0]
    documents = torch.tensor([[0] * 3 + [1] + [2] * 7, [5] * 6 + [4] * 5, [0] * N])
    out = m(tokens, documents=documents)
    for b, first, stop in ((0, 0, 3), (0, 3, 4), (0, 4, N), (1, 0, 6), (1, 6, N), (2, 0, N)):
        assert error(out[b, first:stop], m(tokens[b : b + 1, first:stop])[0]) <= 1e-12
    looped = m(tokens, documents=documents, taps=Editor({"layers.0.mixer.hidden": lambda h: h}))
    assert error(looped, out) <= 1e-12


def test_a_mask_is_refused() -> None:
    with pytest.raises(ClearheadError, match="recurrent or state-space layer"):
        model("gru")(asked("none")[0], mask=Window(3))


@MODELS
def test_every_split(cell: Any, source: str) -> None:
    m, (tokens, inputs) = model(cell, source), asked(source)
    whole = m(tokens, **inputs)
    for cuts in ([n] for n in range(1, N)):
        state, start = m.new_state(), 0
        for stop in (*cuts, N):
            read = m(tokens[:, start:stop], state=state, **(inputs if start == 0 else {}))
            assert error(read, whole[:, start:stop]) <= 1e-12
            start = stop
    state = m.new_state()
    for t in range(N):
        read = m(tokens[:, t : t + 1], state=state, **(inputs if t == 0 else {}))
        assert error(read, whole[:, t : t + 1]) <= 1e-12


@MODELS
def test_going_on_behind_left_padding(cell: Any, source: str) -> None:
    m, (tokens, inputs) = model(cell, source), asked(source)
    present = torch.ones(3, N, dtype=torch.bool)
    present[0, :4] = present[2, :1] = False
    whole, state = m(tokens, present=present, **inputs), m.new_state()
    m(tokens[:, :6], present=present[:, :6], state=state, **inputs)
    assert error(m(tokens[:, 6:], state=state), whole[:, 6:]) <= 1e-12


@MODELS
def test_rows_are_chosen_and_a_pass_taken_back(cell: Any, source: str) -> None:
    m, (tokens, inputs) = model(cell, source), asked(source)
    state, rows = m.new_state(), [2, 0, 2]
    m(tokens[:, :4], state=state, **inputs)
    size = state.nbytes
    m(tokens[:, 4:6], state=state)
    assert state.nbytes == size > 0
    assert [n for n in range(7) if state.can_truncate(n)] == [0, 4, 6]
    with pytest.raises(ClearheadError, match="does not keep every token"):
        state.truncate(5)
    state.truncate(4)
    state.select(rows)
    whole = m(tokens[rows], **{name: value[rows] for name, value in inputs.items()})
    assert error(m(tokens[rows, 4:], state=state), whole[:, 4:]) <= 1e-12


def test_gradients_flow_through_a_state() -> None:
    m, tokens = model("lstm"), asked("none")[0]
    m(tokens)[:, -1].sum().backward()
    whole = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    state = m.new_state()
    m(tokens[:, :7], state=state)
    m(tokens[:, 7:], state=state)[:, -1].sum().backward()
    for a, b in zip((p.grad for p in m.parameters()), whole, strict=True):
        assert error(a, b) <= 1e-12
    state = m.new_state()
    with torch.inference_mode():
        m(tokens[:, :6], state=state)
    m(tokens[:, 6:], state=state).sum().backward()


# ---- taps


@MODELS
@pytest.mark.parametrize("n_tokens", [1, N])
def test_looking_changes_no_bit(cell: Any, source: str, n_tokens: int) -> None:
    m, (tokens, inputs) = model(cell, source, n=2), asked(source)
    tokens = tokens[:, :n_tokens]
    recorder = Recorder(sites(m))
    assert torch.equal(m(tokens, **inputs, taps=recorder), m(tokens, **inputs))
    with torch.no_grad():
        same = Editor({name: lambda value: value for name in sites(m)})
        assert torch.equal(m(tokens, **inputs, taps=same), m(tokens, **inputs))
    shapes = {name.rpartition(".")[2]: tuple(value.shape) for name, value in recorder.values.items()}
    expected: dict[str, tuple[int, ...]] = {"hidden": (3, n_tokens, 9), "out": (3, n_tokens, 12)}
    gates = {"simple": 0, "gru": 3, "lstm": 4, "lstm_1997": 3}[cell]
    expected |= {"gates": (3, n_tokens, 9, gates)} if gates else {}
    expected |= {"cell": (3, n_tokens, 9)} if cell.startswith("lstm") else {}
    expected |= {"alignment": (3, n_tokens, S)} if source == "additive" else {}
    assert shapes == expected


@pytest.mark.parametrize("padded", [False, True])
def test_what_is_shown_fits_together(padded: bool) -> None:
    """h = o tanh(c) and c = f c_before + i g, of an LSTM both ways; at padding there are zeros."""
    torch.manual_seed(0)
    config = TransformerConfig(d_model=12, encoder=stack(RecurrentConfig(cell="lstm", d_hidden=6, both_ways=True)))
    m = Transformer(config).double()
    tokens, present = torch.randint(WORDS, (2, N)), torch.ones(2, N, dtype=torch.bool)
    if padded:
        present[0, 8:] = False
    recorder = Recorder(sites(m))
    m(tokens, present=present, taps=recorder)
    hidden, cell, gates = (recorder.values[f"layers.0.mixer.{name}"] for name in ("hidden", "cell", "gates"))
    i, f, g, o = gates.unbind(-1)
    assert error(hidden, o * torch.tanh(cell)) <= 1e-12
    assert (
        error(
            cell[:, 1:, :6][present[:, 1:]],
            (f[:, 1:] * cell.roll(1, 1)[:, 1:] + i[:, 1:] * g[:, 1:])[..., :6][present[:, 1:]],
        )
        <= 1e-12
    )
    back = (f * cell.roll(-1, 1) + i * g)[:, :-1, 6:]
    assert error(cell[:, :-1, 6:], back) <= 1e-12
    assert not hidden[~present].any() and not gates[~present].any()


@MODELS
def test_an_edit_flows_on(cell: Any, source: str) -> None:
    """A hidden vector put to something else at one step: from there on, all is as if the text began with it."""
    m, (tokens, inputs) = model(cell, source), asked(source)
    new = torch.randn(3, 9, dtype=torch.float64)

    def put(hidden: Tensor) -> Tensor:
        hidden[:, 4] = new
        return hidden

    with torch.no_grad():
        plain, edited = m(tokens, **inputs), m(tokens, **inputs, taps=Editor({"layers.0.mixer.hidden": put}))
        assert error(edited[:, :4], plain[:, :4]) <= 1e-12
        assert error(edited[:, 4], F.linear(m.layers[0].mixer.out_proj(new), m.head.weight)) <= 1e-12
        assert error(edited[:, 5:], plain[:, 5:]) > 1e-3
        # What is kept for the next token is what was put there.
        state = m.new_state()
        m(tokens[:, :5], state=state, **inputs, taps=Editor({"layers.0.mixer.hidden": put}))
        assert error(m(tokens[:, 5:], state=state), edited[:, 5:]) <= 1e-12


def test_edits_of_gates_cells_and_alignments() -> None:
    """A forget gate that is shut forgets; an alignment that is moved gives another context."""
    m, tokens = model("lstm"), asked("none")[0]
    with torch.no_grad():

        def forget(gates: Tensor) -> Tensor:
            gates[:, 5, :, 1] = 0.0
            return gates

        recorder = Recorder(["layers.0.mixer.cell", "layers.0.mixer.gates"])
        m(tokens, taps=Chain(Editor({"layers.0.mixer.gates": forget}), recorder))
        gates, cell = recorder.values["layers.0.mixer.gates"], recorder.values["layers.0.mixer.cell"]
        assert error(cell[:, 5], gates[:, 5, :, 0] * gates[:, 5, :, 2]) <= 1e-12
        emptied = m(tokens, taps=Editor({"layers.0.mixer.cell": torch.zeros_like}))
        assert error(emptied, torch.zeros_like(emptied)) <= 1e-12
        m, (tokens, inputs) = model("gru", "additive"), asked("additive")
        even = Editor({"layers.0.mixer.alignment": lambda a: torch.full_like(a, 1 / S)})
        assert error(m(tokens, **inputs, taps=even)[:, 0], m(tokens, **inputs)[:, 0]) > 1e-4


@MODELS
def test_gradients_a_step_are_whole_derivatives(cell: Any, source: str) -> None:
    """Of every site, against finite differences: what is moved at one step is carried through all later ones."""
    m, (tokens, inputs) = model(cell, source), asked(source)
    watched = [name for name in sites(m) if not name.endswith("out")]
    for name in watched:
        recorder = Recorder([name], keep_graph=True)
        (gradient,) = torch.autograd.grad(
            m(tokens, **inputs, taps=recorder)[:, -1].square().sum(), [recorder.values[name]]
        )
        for t in (0, 6, N - 1):
            place = (0, t, *(1,) * (gradient.ndim - 2))
            ends = []
            for by in (1e-5, -1e-5):

                def move(value: Tensor, by: float = by, place: tuple[int, ...] = place) -> Tensor:
                    value[place] += by
                    return value

                with torch.no_grad():
                    ends.append(float(m(tokens, **inputs, taps=Editor({name: move}))[:, -1].square().sum()))
            assert abs((ends[0] - ends[1]) / 2e-5 - float(gradient[place])) <= 1e-6 * max(1.0, gradient.abs().max())


def test_gradients_of_weights_are_the_same_when_looked_at() -> None:
    m, (tokens, inputs) = model("lstm", "additive"), asked("additive")
    found = []
    for taps in (None, Recorder(sites(m), keep_graph=True)):
        m.zero_grad()
        m(tokens, **inputs, taps=taps).square().sum().backward()
        found.append([p.grad.clone() for p in m.parameters()])
    for a, b in zip(*found, strict=True):
        assert error(a, b) <= 1e-12


def test_half_types_carry_float32() -> None:
    m, tokens = model("gru"), asked("none")[0]
    half = model("gru").to(torch.bfloat16)
    state = half.new_state()
    out = half(tokens, state=state)
    assert out.dtype == torch.bfloat16
    assert all(x.dtype == torch.float32 for layer in state.layers for x in layer.tensors().values())
    assert error(out.double(), m(tokens)) < 4e-2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert error(model("gru").float()(tokens).double(), m(tokens)) < 4e-2


# ---- what is refused


def test_configs_that_make_no_sense() -> None:
    last = RecurrentConfig(cell="gru", d_hidden=4, source="last")
    both = RecurrentConfig(cell="gru", d_hidden=4, both_ways=True)
    cases: list[tuple[Any, str]] = [
        (lambda: RecurrentConfig(cell="gruu", d_hidden=4), "'gruu'; it must be one of simple, lstm"),  # type: ignore[arg-type]
        (lambda: RecurrentConfig(cell="gru", d_hidden=0), "d_hidden is 0"),
        (lambda: RecurrentConfig(cell="gru", d_hidden=4, source="first"), "'last' or an Additive"),  # type: ignore[arg-type]
        (lambda: RecurrentConfig(cell="gru", d_hidden=4, source="last", both_ways=True), "can't read both ways"),
        (lambda: TransformerConfig(d_model=4, decoder=stack(last)), "has nothing to look at"),
        (lambda: TransformerConfig(d_model=4, decoder=stack(both)), "can't be read from its end"),
        (
            lambda: TransformerConfig(
                d_model=4, encoder=stack(both), decoder=stack(RecurrentConfig(cell="gru", d_hidden=4))
            ),
            "recurrent mixer's source",
        ),
        (
            lambda: BlockConfig(
                mixer=SublayerConfig(op=AttentionConfig(n_heads=1, n_kv_heads=1, d_head=4), residual=False),
                ffn=SublayerConfig(op=last, pre=NormConfig()),
                parallel=True,
            ),
            "neither can take its place",
        ),
    ]
    for make, words in cases:
        with pytest.raises(ClearheadError, match=words):
            make()


def test_a_source_that_was_not_given() -> None:
    m = model("gru", "additive")
    with pytest.raises(ClearheadError, match="looks at a source"):
        m(asked("none")[0])
