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


@dataclass(frozen=True)
class Parts:
    """What a logit is the sum of. In float64."""

    pieces: dict[str, Tensor] = field(default_factory=dict)
    """Of each addition, by its label, (B, n): one, or one a head, a neuron or a token that was looked at."""
    embedding: dict[str, Tensor] = field(default_factory=dict)
    """The terms of the embedding, (B,) each."""
    biases: dict[str, Tensor] = field(default_factory=dict)
    """What would be there whatever the text, (B,) each, where it is not part of a piece."""

    def on_cpu(self) -> Parts:
        """The same, where tables are made."""
        return Parts(*({name: value.cpu() for name, value in each.items()} for each in vars(self).values()))


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
            pieces_BN, bias_B = _pieces(addition, seen, at, direction_BD, by)
            if bias_B is not None:
                parts.biases[f"{addition.label} bias"] = bias_B
        else:
            pieces_BN = (seen[addition.out][at].double() * direction_BD).sum(-1, keepdim=True)
        parts.pieces[addition.label] = pieces_BN
    for name, term_BD in embedding_parts(model, seen, at).items():
        parts.embedding[name] = (term_BD * direction_BD).sum(-1)
    return parts


def _pieces(addition: Addition, seen: Seen, at: Any, direction_BD: Tensor, by: By) -> tuple[Tensor, Tensor | None]:
    """An addition taken apart, (B, n), and the part of its biases, (B,). `direction_BD` reads what is added."""
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
        return read_BE * direction_BE, bias_B
    n_heads = seen[f"{path}.z"].shape[1]
    direction_BHK = direction_BE.unflatten(1, (n_heads, -1))
    if by == "head":
        return (read_BE.unflatten(1, (n_heads, -1)) * direction_BHK).sum(-1), bias_B
    pattern_BHS = seen[f"{path}.pattern"].transpose(1, 2)[at].double()
    v_BGSK = seen[f"{path}.v"].double()
    v_BHSK = v_BGSK.repeat_interleave(n_heads // v_BGSK.shape[1], dim=1)
    return torch.einsum("bhs,bhsk,bhk->bs", pattern_BHS, v_BHSK, direction_BHK), bias_B
