"""Recurrent networks: a mixer that carries one vector from token to token, as everything did before attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import AdditiveAttentionConfig, RecurrentConfig
from clearhead.errors import ClearheadError
from clearhead.forward import Pass
from clearhead.layer_state import CrossState, LayerState, RecurrentState
from clearhead.nn.convolution import Reading
from clearhead.nn.linear import Linear
from clearhead.ops.attention import MINUS_INFINITY, accumulation_dtype, normalise
from clearhead.ops.masks import Positions
from clearhead.ops.recurrence import GATES, HAS_CELL, Attend, Memory, Weights, additive_scores, fused, recur


def _uniform(*shape: int, n: int) -> Tensor:
    """As torch's own recurrent networks start: evenly within one by the root of `n`."""
    return torch.empty(shape).uniform_(-(n**-0.5), n**-0.5)


class Cell(nn.Module):
    """The weights of one cell, as `torch.nn` has them."""

    read_by_hand: ClassVar = ("x_proj", "h_proj")
    """Parts whose weights are read, and which are never called."""

    def __init__(self, d_in: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        n_gates, n = max(1, len(GATES[config.cell])), config.d_hidden
        self.x_proj = Linear(d_in, n_gates * n)
        self.h_proj = Linear(n, n_gates * n)

    def first_values(self) -> dict[str, Tensor]:
        """Each gate's recurrent matrix orthogonal, times the gain; a forget gate open by its bias."""
        c, n = self.config, self.config.d_hidden
        n_gates = self.h_proj.out_features // n
        bias = torch.zeros(n_gates, n)
        if "f" in GATES[c.cell]:
            bias[GATES[c.cell].index("f")] = c.forget_bias
        return {
            "x_proj.weight": _uniform(*self.x_proj.weight.shape, n=n),
            "x_proj.bias": bias.flatten(),
            "h_proj.weight": torch.cat([nn.init.orthogonal_(torch.empty(n, n), c.gain) for _ in range(n_gates)]),
            "h_proj.bias": torch.zeros(n_gates * n),
        }

    def weights(self, dtype: torch.dtype) -> Weights:
        """In torch's order."""
        x, h = self.x_proj, self.h_proj
        return Weights(*(p.to(dtype) for p in (x.weight, h.weight, x.bias, h.bias)))


@dataclass(frozen=True)
class Looked:
    """What is kept of a source: its vectors, what attention's query is compared to, and which tokens are there."""

    keys_BSA: Tensor
    values_BSD: Tensor
    positions: Positions

    @property
    def present_BS(self) -> Tensor | None:
        if self.positions.span is not None:
            return None
        return self.positions.rows(self.values_BSD.device) >= 0


class SourceVectors(nn.Module):
    """How a recurrent decoder looks at what an encoder made of the source, of which a state keeps what is needed."""

    read_by_hand: ClassVar = ("start_proj", "query_proj", "key_proj")
    """Parts whose weights are read, and which are never called."""

    def __init__(self, d_model: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.path = ""
        self.start_proj = Linear(d_model, config.d_hidden)
        self.query_proj = self.key_proj = self.v = None
        if isinstance(config.source, AdditiveAttentionConfig):
            d_attention = config.source.d_attention
            self.query_proj = Linear(config.d_hidden, d_attention, bias=False)
            self.key_proj = Linear(d_model, d_attention, bias=False)
            self.v = nn.Parameter(torch.zeros(d_attention))

    def first_values(self) -> dict[str, Tensor]:
        matrices = {"start_proj": self.start_proj, "query_proj": self.query_proj, "key_proj": self.key_proj}
        values = {f"{k}.weight": _uniform(*m.weight.shape, n=m.in_features) for k, m in matrices.items() if m}
        if self.v is not None:
            values["v"] = _uniform(len(self.v), n=len(self.v))
        return values

    def new_state(self, capacity: int | None = None) -> LayerState:
        return CrossState()

    def forward(self, p: Pass) -> Looked:
        """What a pass gives of a source, or what was kept of it."""
        memory = cast(CrossState, p.state.at(self.path)) if p.state is not None else CrossState()
        if p.source is not None:
            x_BSD, positions = p.source.x_BSD, p.source.positions
            x_BSD = x_BSD.to(accumulation_dtype(x_BSD.dtype))
            if self.key_proj is None:
                x_BSD, positions = _at(x_BSD, positions, last=True)[:, None], Positions(span=(0, 1))
            keys_BSA = x_BSD if self.key_proj is None else F.linear(x_BSD, self.key_proj.weight.to(x_BSD.dtype))
            memory.fill(keys_BSA[:, None], x_BSD[:, None], positions)
        if memory.kept is None:
            raise ClearheadError("this model looks at a source, and none was given: pass source= (or frames=, pixels=)")
        keys, values, positions = memory.kept
        return Looked(keys[:, 0], values[:, 0], positions)

    def start(self, looked: Looked) -> Tensor:
        """The hidden vector before the first token: tanh(W h), of the source's last vector, or under attention of its
        first (Bahdanau 2014, appendix A.2.2), where a backward reader has come to the end of its way.
        """
        h_BD = _at(looked.values_BSD, looked.positions, last=False)
        return torch.tanh(F.linear(h_BD, *(p.to(h_BD.dtype) for p in (self.start_proj.weight, self.start_proj.bias))))


def _at(x_BSD: Tensor, positions: Positions, last: bool) -> Tensor:
    """The vector of the first or last token that is there."""
    if positions.span is not None:
        return x_BSD[:, -1 if last else 0]
    rows_BS = positions.rows(x_BSD.device).expand(x_BSD.shape[:2])
    there_BS = rows_BS >= 0
    slot_B = rows_BS.argmax(dim=1) if last else there_BS.int().argmax(dim=1)
    return x_BSD[torch.arange(len(x_BSD), device=x_BSD.device), slot_B]


Edits = Mapping[str, tuple[Tensor, Tensor]]
"""By name: what there was, and what takes its place; (B, T, ...) each."""


@dataclass
class Trace:
    """What the steps of a loop worked out, by name, and what takes the place of some of it."""

    wanted: frozenset[str]
    edits: Edits
    seen: dict[str, dict[int, Tensor]] = field(default_factory=dict)

    def __call__(self, slot: int, name: str, value: Tensor) -> Tensor:
        if name in self.edits:
            old, new = (x[:, slot] for x in self.edits[name])
            # What was not edited stays as this loop has it, so that an edit flows on through all later steps; adding
            # zero lets the gradient of everything that follows come to what was offered.
            value = torch.where(new != old, new, value + (new - new.detach()))
        if name in self.wanted:
            self.seen.setdefault(name, {})[slot] = value
        return value

    def stacked(self, name: str) -> Tensor:
        return torch.stack([value for _, value in sorted(self.seen[name].items())], dim=1)


class Recurrent(nn.Module):
    """h_t = cell(x_t, h_{t-1}), one token after another; one cell, or one each way.

    Whoever only reads gets the fused kernel's hidden vectors, and gates and cells from a loop beside it. An edit runs
    the loop twice: once to show what there is, once with what came back in its place. What is shown is a leaf: its
    gradient at a step is the whole derivative by that step, through all later ones; and a recorder behind an editor
    sees what was put there, not what followed from it.
    """

    def __init__(self, d_model: int, config: RecurrentConfig) -> None:
        super().__init__()
        c = self.config = config
        self.path = ""
        d_in = d_model if c.source is None else 2 * d_model
        self.cell = Cell(d_in, c)
        self.back = Cell(d_in, c) if c.both_ways else None
        self.source = SourceVectors(d_model, c) if c.source is not None else None
        width = c.d_hidden * (1 + c.both_ways)
        self.out_proj = Linear(width, d_model, bias=False) if width != d_model else None
        has = {"cell": c.cell in HAS_CELL, "gates": bool(GATES[c.cell])}
        has["alignment"] = isinstance(c.source, AdditiveAttentionConfig)
        self.sites = {name: shape for name, shape in taps.RECURRENT.items() if has.get(name, True)}

    def new_state(self, capacity: int | None = None) -> LayerState:
        """An empty memory; its size does not depend on `capacity`."""
        return RecurrentState()

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        # A vector that is carried over the whole text is kept in float32 at least.
        with torch.autocast(x_BTD.device.type, enabled=False):
            hidden_BTF = self._read(x_BTD.to(accumulation_dtype(x_BTD.dtype)), p)
        out_BTD = hidden_BTF.to(x_BTD.dtype)
        return out_BTD if self.out_proj is None else self.out_proj(out_BTD)

    def _read(self, x_BTD: Tensor, p: Pass) -> Tensor:
        """The hidden vector at every token."""
        looked = None if self.source is None else self.source(p)
        memory = None if p.state is None else cast(RecurrentState, p.state.at(self.path))
        first = None if memory is None else memory.recall()
        if first is None:
            first = self._first(x_BTD, looked)
        if looked is not None and "alignment" not in self.sites:
            x_BTD = torch.cat([x_BTD, looked.values_BSD.expand(-1, x_BTD.shape[1], -1)], dim=-1)
        hidden_BTF, last = _Run(self, x_BTD, first, Reading.of(p), looked).shown(p)
        if memory is not None:
            memory.keep(x_BTD.shape[1], last)
        return hidden_BTF

    def _first(self, x_BTD: Tensor, looked: Looked | None) -> Memory:
        zeros_BF = x_BTD.new_zeros(x_BTD.shape[0], self.config.d_hidden)
        hidden_BF = zeros_BF if looked is None or self.source is None else self.source.start(looked)
        return Memory(hidden_BF, zeros_BF if self.config.cell in HAS_CELL else None)


class _Run:
    """One text through a mixer's cells, as often as those who look make it necessary."""

    def __init__(self, mixer: Recurrent, x_BTD: Tensor, first: Memory, reading: Reading, looked: Looked | None) -> None:
        self.mixer, self.x_BTD, self.first, self.looked = mixer, x_BTD, first, looked
        self.kind = mixer.config.cell
        self.cells = [mixer.cell] + ([mixer.back] if mixer.back is not None else [])
        self.without_padding = reading.without_padding
        self.slots = {"present_BT": reading.present_BT, "start_BT": reading.start_BT}

    def shown(self, p: Pass) -> tuple[Tensor, Memory]:
        """The hidden vectors and the last memory, with every site offered to whoever looks."""
        path = self.mixer.path
        names = [name for name in self.mixer.sites if name != "out"]
        modes = {name: "none" if p.taps is None else p.taps.mode(path, name) for name in names}
        edits, reads = ([name for name in names if modes[name] == mode] for mode in ("edit", "read"))
        hidden_BTF, last, seen = self._run(reads, self._edited(edits, p))
        for name in reads:
            p.tap(path, name, seen[name])
        return hidden_BTF, last

    def _edited(self, names: list[str], p: Pass) -> Edits:
        """What these sites are, and what they are to be; nothing where all of it was put back."""
        if not names:
            return {}
        with torch.no_grad():
            seen = self._loop(names, {})[2]
        old = {name: value.detach().requires_grad_(torch.is_grad_enabled()) for name, value in seen.items()}
        edits = {name: (old[name].detach(), p.tap(self.mixer.path, name, old[name])) for name in names}
        return {} if all(taps.as_it_was(*edit) for edit in edits.values()) else edits

    def _run(self, wanted: list[str], edits: Edits) -> tuple[Tensor, Memory, dict[str, Tensor]]:
        """The hidden vectors, the last memory, and what is wanted."""
        if edits or "alignment" in self.mixer.sites:
            return self._loop(wanted, edits)
        hidden_BTF, last = self._fused()
        seen = {"hidden": hidden_BTF}
        beside = [name for name in wanted if name != "hidden"]
        if beside:
            with torch.no_grad():
                seen |= self._loop(beside, {})[2]
        return hidden_BTF, last, seen

    def _fused(self) -> tuple[Tensor, Memory]:
        """By torch's kernels."""
        runs = [
            fused(
                self.kind,
                self.x_BTD,
                self.first,
                self._weights(cell),
                **self.slots,
                backwards=cell is not self.cells[0],
            )
            for cell in self.cells
        ]
        return _side_by_side([hidden_BTF for hidden_BTF, _ in runs]), runs[0][1]

    def _loop(self, wanted: list[str], edits: Edits) -> tuple[Tensor, Memory, dict[str, Tensor]]:
        """Step by step."""
        n, hidden, memories = self.mixer.config.d_hidden, [], []
        traces = []
        for i, cell in enumerate(self.cells):
            own = slice(i * n, (i + 1) * n)
            trace = Trace(frozenset(k for name in wanted for k in self._parts(name)), self._own(edits, own))
            weights = self._weights(cell)
            hidden_BTF, memory = recur(
                self.kind,
                F.linear(self.x_BTD, weights.weight_ih[:, : self.x_BTD.shape[-1]], weights.bias_ih),
                self.first,
                weights,
                **self.slots,
                backwards=i > 0,
                attend=self._attend(weights, trace),
                change=trace,
            )
            hidden.append(self.without_padding(hidden_BTF))
            memories.append(memory)
            traces.append(trace)
        hidden_BTF = _side_by_side(hidden)
        seen = {name: self._seen(name, traces) for name in wanted if name != "hidden"}
        return hidden_BTF, memories[0], {"hidden": hidden_BTF} | seen

    def _weights(self, cell: Cell) -> Weights:
        return cell.weights(self.x_BTD.dtype)

    def _attend(self, weights: Weights, trace: Trace) -> Attend | None:
        """What additive attention adds at each step, of the hidden vector before it."""
        source, looked = self.mixer.source, self.looked
        if looked is None or source is None or source.query_proj is None or source.v is None:
            return None
        dtype, present_BS = self.x_BTD.dtype, looked.present_BS
        query_AF, v_A = source.query_proj.weight.to(dtype), source.v.to(dtype)
        context_CD = weights.weight_ih[:, self.x_BTD.shape[-1] :]

        def attend(slot: int, hidden_BF: Tensor) -> Tensor:
            scores_BS = additive_scores(F.linear(hidden_BF, query_AF), looked.keys_BSA, v_A)
            if present_BS is not None:
                scores_BS = scores_BS.masked_fill(~present_BS, MINUS_INFINITY)
            pattern_BS = trace(slot, "alignment", normalise(scores_BS[:, None, None])[:, 0, 0])
            return F.linear((pattern_BS[:, None] @ looked.values_BSD)[:, 0], context_CD)

        return attend

    def _parts(self, name: str) -> str | list[str]:
        """What a loop calls that which stands at a site."""
        return GATES[self.kind] if name == "gates" else [name]

    def _own(self, edits: Edits, own: slice) -> Edits:
        """Those of one direction, by what a loop calls them."""
        found: dict[str, tuple[Tensor, Tensor]] = {}
        for name, (old, new) in edits.items():
            if name == "alignment":
                found[name] = (old, new)
                continue
            for i, part in enumerate(self._parts(name)):
                at = (..., own, i) if name == "gates" else (..., own)
                found[part] = (old[at], new[at])
        return found

    def _seen(self, name: str, traces: list[Trace]) -> Tensor:
        """A site's value, of both directions side by side, with zeros at padding."""
        parts = [torch.stack([trace.stacked(k) for k in self._parts(name)], dim=-1) for trace in traces]
        whole = torch.cat(parts, dim=2)
        value: Tensor = self.without_padding(whole.flatten(2)).view(whole.shape)
        return value if name == "gates" else value.squeeze(-1)


def _side_by_side(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
