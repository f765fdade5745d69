"""What one head writes, in words: its output, or its OV circuit, read as scores over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.frozen import FrozenNorm
from clearhead.lens.record import look
from clearhead.lens.stream import Addition, additions
from clearhead.lens.table import Table
from clearhead.lens.targets import Target, check_vocabulary, check_whole, token_ids, token_names
from clearhead.lens.views.labels import visible
from clearhead.nn.norm import Norm

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True, eq=False)
class Words(Table):
    """A row a token, its likeliest words best first: `cells`, and in `values` how much each gains."""

    corner: ClassVar[str] = "token \\ rank"
    cells: list[list[str]]
    ids: Tensor
    """(rows, top): the words as ids."""
    own_ranks: Tensor | None
    """(rows,): the place of the row's own token among all words, 1 the first; None where rows are no words."""

    @property
    def copying(self) -> float:
        """The share of rows whose own token is their first word.

        Raises:
            ClearheadError: rows are no words of this vocabulary.
        """
        if self.own_ranks is None:
            raise ClearheadError("the rows are no words of the vocabulary, so none could be copied")
        return float((self.own_ranks == 1).double().mean())

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, ready for `json.dumps`."""
        ranks = None if self.own_ranks is None else self.own_ranks.tolist()
        return {**super().to_json(), "cells": self.cells, "ids": self.ids.tolist(), "own_ranks": ranks}


def head_output(
    model: Transformer, inputs: Inputs, layer: int, head: int, *, top: int = 5, kind: str = "mixer"
) -> Words:
    """What a head adds to the logits at every token of one text, by the stream alone: z W_O through the final norm, its
    scale frozen, and the vocabulary head.

    Words are ordered by what they gain. A norm of the correction (sandwich) and norms after an addition are frozen too.
    kind: "cross" for a head that looks at a source.

    Raises:
        ClearheadError: no such head, no vocabulary head, a head with a transform (which is not linear), several rows.
    """
    addition = _addition(model, layer, head, kind)
    call = arguments(model, inputs)
    check_whole(call)
    added = additions(model)
    later = added[added.index(addition) :]
    z, last = f"{addition.op.path}.z", f"layers.{len(model.layers) - 1}.resid_post"
    seen = look(model, inputs, z, last, *(place for other in later for place in other.addresses()))
    if seen[z].shape[0] != 1:
        raise ClearheadError(f"a head's words are of one text, and there are {seen[z].shape[0]} rows")
    written_TD = _written(addition, seen[z][0], head)
    if addition.norms.out is not None:
        matrix = addition.output_matrix
        whole_TD = matrix(seen[z][0].transpose(0, 1).flatten(1))
        written_TD = FrozenNorm(addition.norms.out, whole_TD).map(written_TD)
    written_TD = written_TD * addition.scale
    for other in later:
        norm = other.norm_after(seen, 0)
        written_TD = written_TD if norm is None else norm.map(written_TD)
    if model.norm is not None:
        written_TD = FrozenNorm(model.norm, seen[last][0]).map(written_TD)
    labels = [visible(label) for label in seen.tokens[0]] if seen.tokens else []
    ids_T = call.tokens_BT[0] if call.tokens_BT is not None else None
    return _words(model, written_TD, f"What head {layer}.{head} writes", labels, ids_T, top)


def ov(model: Transformer, layer: int, head: int, tokens: Target, *, top: int = 5) -> Words:
    """What a head would write if it looked at a token: its OV circuit, between words and words (Elhage 2021).

    W_E, the layer's norm, W_V, W_O, the final norm and the vocabulary. The token stands alone, as the embedding makes
    it without a place; biases are left out; norms whose size is not known before a pass (the final one, and that of a
    correction) keep their weights, and count as of size one: what is compared is words with words.

    Raises:
        ClearheadError: no such head, latent attention, no vocabulary head, or one with a transform.
    """
    addition = _addition(model, layer, head, "mixer")
    op = addition.op
    if not hasattr(op, "v_proj"):
        raise ClearheadError(f"layer {layer} makes values from a latent vector, not from tokens; use head_output")
    ids_N = token_ids(model, tokens, 1 if isinstance(tokens, str | int) else len(tokens))
    with torch.no_grad():
        x_ND = _alone(model, ids_N)
        x_ND = x_ND if addition.norms.pre is None else addition.norms.pre(x_ND)
        n_heads, n_kv_heads = op.config.n_heads, op.config.n_kv_heads
        weight_GKD = op.v_proj.weight.detach().unflatten(0, (n_kv_heads, -1))
        v_NK = x_ND.double() @ weight_GKD[head * n_kv_heads // n_heads].double().T
        weight_DHK = addition.output_matrix.weight.detach().unflatten(1, (n_heads, -1))
        written_ND = v_NK @ weight_DHK[:, head].double().T
        for norm in (addition.norms.out, model.norm):
            written_ND = _weighed(norm, written_ND)
    names = token_names(model, ids_N)
    return _words(model, written_ND, f"What head {layer}.{head} makes of tokens it looks at", names, ids_N, top)


def _addition(model: Transformer, layer: int, head: int, kind: str) -> Addition:
    check_vocabulary(model, "a head's output in words")
    if model.head is not None and model.head.transform is not None:
        raise ClearheadError("this model's vocabulary head has an activation: what one head writes can't be read alone")
    found = [a for a in additions(model) if a.layer == layer and a.kind == kind and a.has_heads]
    if not found:
        there = ", ".join(str(a.layer) for a in additions(model) if a.kind == kind and a.has_heads) or "none"
        raise ClearheadError(f"there is no attention ({kind}) in layer {layer}; layers that have it: {there}")
    n = int(found[0].op.config.n_heads)
    if not 0 <= head < n:
        raise ClearheadError(f"there is no head {head} in layer {layer}; its heads are 0 to {n - 1}")
    return found[0]


def _written(addition: Addition, z_HTK: Tensor, head: int) -> Tensor:
    """One head's part of what its layer writes, (T, D), the bias left out."""
    weight_DHK = addition.output_matrix.weight.detach().unflatten(1, (z_HTK.shape[0], -1))
    written_TD: Tensor = z_HTK[head].double() @ weight_DHK[:, head].double().T
    return written_TD


def _alone(model: Transformer, ids_N: Tensor) -> Tensor:
    """What the embedding makes of tokens, (n, D), without a place."""
    embed = model.embed
    assert embed.tokens is not None
    x_ND: Tensor = embed.tokens(ids_N) * embed.config.scale
    if embed.norm is not None:
        x_ND = embed.norm(x_ND)
    alone_ND: Tensor = x_ND if embed.project is None else embed.project(x_ND)
    return alone_ND


def _weighed(norm: Norm | None, x_ND: Tensor) -> Tensor:
    """Through a norm of size one: centred where it centres, and weighed."""
    if norm is None:
        return x_ND
    centred = x_ND - x_ND.mean(-1, keepdim=True) if norm.config.kind == "layer" else x_ND
    return centred * (norm.weight.detach().double() + norm.config.offset)


def _words(model: Transformer, x_ND: Tensor, title: str, labels: list[str], ids_N: Tensor | None, top: int) -> Words:
    assert model.head is not None
    weight_VD = model.unembedding.detach()
    wide = torch.promote_types(weight_VD.dtype, torch.float32)
    scores_NV = x_ND.to(wide) @ weight_VD.to(wide).T * model.head.config.scale
    best = scores_NV.topk(min(top, scores_NV.shape[1]), dim=-1)
    names = token_names(model, best.indices)
    n = best.indices.shape[1]
    ranks = None if ids_N is None else 1 + (scores_NV > scores_NV.gather(1, ids_N[:, None])).sum(-1)
    return Words(
        title=title,
        values=best.values,
        row_labels=labels or [str(i) for i in range(len(scores_NV))],
        column_labels=[str(i + 1) for i in range(n)],
        cells=[names[i : i + n] for i in range(0, len(names), n)],
        ids=best.indices,
        own_ranks=ranks,
    )
