"""The walk from a logit back to the embedding: what its direction reads of each part of the stream on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from clearhead.lens.frozen import FrozenNorm
from clearhead.lens.seen import Seen
from clearhead.lens.stream import Addition, embedding_parts

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

By = Literal["layer", "head", "neuron", "position"]
FIRST = 3
"""Products of a piece that are kept, to show how it was made."""


@dataclass(frozen=True)
class Parts:
    """What a logit is the sum of. In float64."""

    pieces: dict[str, Tensor] = field(default_factory=dict)
    """Of each addition, by its label, (B, n): one, or one a head, a neuron or a token that was looked at."""
    embedding: dict[str, Tensor] = field(default_factory=dict)
    """The terms of the embedding, (B,) each."""
    biases: dict[str, Tensor] = field(default_factory=dict)
    """What would be there whatever the text, (B,) each, where it is not part of a piece."""
    products: dict[str, Tensor] = field(default_factory=dict)
    """Of the first row: the first pairs of numbers whose products each piece is the sum of, (n, FIRST or fewer, 2).
    They are what stands in the stream, and what the direction reads of it; of tokens, the weight of each head, and
    what the direction reads of its value. Terms of the embedding are among them, by their names.
    """
    lengths: dict[str, int] = field(default_factory=dict)
    """How many products a piece is the sum of."""

    def on_cpu(self) -> Parts:
        """The same, where tables are made."""
        found = [
            {name: value.cpu() for name, value in each.items()}
            for each in (self.pieces, self.embedding, self.biases, self.products)
        ]
        return Parts(found[0], found[1], found[2], found[3], self.lengths)

    def keep(self, name: str, read_BNK: Tensor, direction_BNK: Tensor) -> None:
        """Note what a piece is the sum of."""
        pairs = [x.expand(read_BNK.shape)[0, :, :FIRST] for x in (read_BNK, direction_BNK)]
        self.products[name] = torch.stack(pairs, dim=-1)
        self.lengths[name] = read_BNK.shape[-1]


def taken_apart(addition: Addition, by: By) -> bool:
    """Whether more than one piece of it is wanted, and there is."""
    match by:
        case "head" | "position":
            return addition.has_heads
        case "neuron":
            return addition.has_neurons
    return False


def wanted(model: Transformer, added: list[Addition], by: By) -> list[str]:
    """The addresses that have to be seen for it."""
    found = ["embed", *(f"{model.embed.path}.{name}" for name in model.embed.sites)]
    for addition in added:
        found += addition.addresses()
        if taken_apart(addition, by):
            names = {"head": ("z",), "neuron": ("post",), "position": ("pattern", "v", "z")}[by]
            found += [f"{addition.op.path}.{name}" for name in names]
    return found


def pull_back(model: Transformer, added: list[Addition], seen: Seen, at: Any, direction_BD: Tensor, by: By) -> Parts:
    """What `direction_BD`, at the end of the last block, reads of each addition at the slots `at` of (B, T).

    The direction goes back block by block, through the norms that stand after an addition, with their scales frozen.
    """
    parts = Parts()
    for addition in reversed(added):
        norm = addition.norm_after(seen, at)
        if norm is not None:
            if norm.bias_D is not None:
                parts.biases[f"{addition.label} norm bias"] = norm.constant(direction_BD)
            direction_BD = norm.pull(direction_BD)
        if taken_apart(addition, by):
            pieces_BN, bias_B = _pieces(addition, seen, at, direction_BD, by, parts)
            if bias_B is not None:
                parts.biases[f"{addition.label} bias"] = bias_B
        else:
            out_BD = seen[addition.out][at].double()
            pieces_BN = (out_BD * direction_BD).sum(-1, keepdim=True)
            parts.keep(addition.label, out_BD[:, None], direction_BD[:, None])
        parts.pieces[addition.label] = pieces_BN
    for name, term_BD in embedding_parts(model, seen, at).items():
        parts.embedding[name] = (term_BD * direction_BD).sum(-1)
        parts.keep(name, term_BD[:, None].double(), direction_BD[:, None])
    return parts


def _pieces(
    addition: Addition, seen: Seen, at: Any, direction_BD: Tensor, by: By, parts: Parts
) -> tuple[Tensor, Tensor | None]:
    """An addition taken apart, (B, n), and the part of its biases, (B,). `direction_BD` reads what is added; `parts`
    keeps the products behind each piece.
    """
    path, matrix = addition.op.path, addition.output_matrix
    weight_DE = matrix.weight.detach().double()
    bias_D = None if matrix.bias is None else matrix.bias.detach().double()
    # z is (B, H, T, K): the matrix reads its heads side by side.
    read = seen[f"{path}.post"] if by == "neuron" else seen[f"{path}.z"].transpose(1, 2).flatten(2)
    read_BE, direction_BD, bias_B = read[at].double(), direction_BD * addition.scale, None
    if addition.norms.out is not None:
        raw_BD = read_BE @ weight_DE.T
        norm = FrozenNorm(addition.norms.out, raw_BD if bias_D is None else raw_BD + bias_D)
        bias_B = None if norm.bias_D is None else norm.constant(direction_BD)
        direction_BD = norm.pull(direction_BD)
    if bias_D is not None:
        own_B = direction_BD @ bias_D
        bias_B = own_B if bias_B is None else bias_B + own_B
    direction_BE = direction_BD @ weight_DE
    if by == "neuron":
        parts.keep(addition.label, read_BE[..., None], direction_BE[..., None])
        return read_BE * direction_BE, bias_B
    n_heads = seen[f"{path}.z"].shape[1]
    direction_BHK = direction_BE.unflatten(1, (n_heads, -1))
    if by == "head":
        read_BHK = read_BE.unflatten(1, (n_heads, -1))
        parts.keep(addition.label, read_BHK, direction_BHK)
        return (read_BHK * direction_BHK).sum(-1), bias_B
    pattern_BHS = seen[f"{path}.pattern"].transpose(1, 2)[at].double()
    v_BGSK = seen[f"{path}.v"].double()
    v_BHSK = v_BGSK.repeat_interleave(n_heads // v_BGSK.shape[1], dim=1)
    parts.keep(addition.label, pattern_BHS.transpose(1, 2), torch.einsum("bhsk,bhk->bsh", v_BHSK, direction_BHK))
    return torch.einsum("bhs,bhsk,bhk->bs", pattern_BHS, v_BHSK, direction_BHK), bias_B
