"""What the weights of heads say without any text (Elhage 2021, "A Mathematical Framework for Transformer Circuits").

A head's QK circuit, W_Q^T W_K, says which tokens it looks at; its OV circuit, W_O W_V, what it writes when it does.
Both are D x D of rank K, and are never multiplied out: everything here is K x K. The scales of the norms before and
after an attention are taken into its matrices. What a norm divides by depends on the text and is not, nor is the
turning of rotary positions, which is nothing between a token and itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from clearhead.errors import ClearheadError
from clearhead.nn.block import Block
from clearhead.nn.latent_attention import LatentAttention

if TYPE_CHECKING:
    from clearhead.lens.heads.parts import Part
    from clearhead.model.transformer import Transformer
    from clearhead.nn.norm import Norm

SAMPLE = 8192
"""Tokens of the vocabulary that copying is measured on, drawn at random where there are more."""
Way = Literal["q", "k", "v"]


@dataclass(frozen=True)
class Matrices:
    """What each head of a layer reads with and writes with, in float32 on the CPU: (H, K, D), and (H, D, V)."""

    q_HKD: Tensor
    k_HKD: Tensor
    v_HVD: Tensor
    o_HDV: Tensor


def matrices(block: nn.Module) -> Matrices:
    """Of a block's attention; grouped keys and values are written out for each head."""
    assert isinstance(block, Block)
    read = _latent if isinstance(block.mixer, LatentAttention) else _attention
    with torch.no_grad():
        q_HKD, k_HKD, v_HVD, o_HDV = read(block.mixer)
        read_D, write_D = _scale(block.mixer_norm.pre), _scale(block.mixer_norm.out)
        n_heads = q_HKD.shape[0]
        k_HKD, v_HVD = (x.repeat_interleave(n_heads // len(x), dim=0) for x in (k_HKD, v_HVD))
        return Matrices(q_HKD * read_D, k_HKD * read_D, v_HVD * read_D, o_HDV * write_D[..., None])


def _attention(op: Any) -> tuple[Tensor, ...]:
    d_head = op.config.d_head
    q_HKD, k_GKD, v_GKD = (
        layer.weight.detach().float().cpu().unflatten(0, (-1, d_head)) for layer in (op.q_proj, op.k_proj, op.v_proj)
    )
    if op.q_norm is not None and op.k_norm is not None:
        q_HKD = q_HKD * _per_head(op.q_norm, d_head)
        k_GKD = k_GKD * _per_head(op.k_norm, d_head)
    return q_HKD, k_GKD, v_GKD, _out(op.o_proj.weight, d_head)


def _latent(op: Any) -> tuple[Tensor, ...]:
    """Keys and values go through the latent: W_UK W_DKV and W_UV W_DKV, the shared rotated key beside them."""
    w, n_heads = op.config.widths, op.config.n_heads
    if w.q is None:
        q_ED = op.q_proj.weight.detach().float().cpu()
    else:
        q_ED = _weight(op.q_b_proj.weight) * _scale(op.q_a_norm) @ _weight(op.q_a_proj.weight)
    down_CD, rope_RD = _weight(op.kv_a_proj.weight).split([w.kv, w.rope])
    both_HED = (_weight(op.kv_b_proj.weight) * _scale(op.kv_a_norm) @ down_CD).unflatten(0, (n_heads, -1))
    nope_HND, v_HVD = both_HED.split([w.nope, w.value], dim=1)
    k_HKD = torch.cat([nope_HND, rope_RD.expand(n_heads, -1, -1)], dim=1)
    return q_ED.unflatten(0, (n_heads, -1)), k_HKD, v_HVD, _out(op.o_proj.weight, w.value)


def _weight(weight: Tensor) -> Tensor:
    return weight.detach().float().cpu()


def _out(weight_DE: Tensor, d_value: int) -> Tensor:
    o_DHV: Tensor = _weight(weight_DE).unflatten(1, (-1, d_value))
    return o_DHV.transpose(0, 1)


def _scale(norm: Norm | None) -> Tensor:
    """What a norm multiplies by."""
    return torch.ones(1) if norm is None else _weight(norm.weight) + norm.config.offset


def _per_head(norm: Norm, d_head: int) -> Tensor:
    """The scale of a norm over one head or over all, for each row of a projection."""
    scale_hK: Tensor = _scale(norm).unflatten(0, (-1, d_head))
    return scale_hK[..., None]


# ---- copying


@dataclass(frozen=True)
class Copying:
    """`score` is sum(Re l) / sum(|l|) over the eigenvalues l of a head's whole OV circuit W_U W_O W_V W_E, -1 to 1: at
    1 looking at any token makes that same token likelier. `control` and `spread` are its mean and standard deviation
    over all heads of the stack where W_U is of the tokens in shuffled order.
    """

    score: float
    control: float
    spread: float


def copying(part: Part, seed: int = 0) -> dict[tuple[int, int], Copying]:
    """Of every head (Elhage 2021, section "Summarizing OV/QK matrices").

    The V x V circuit has the eigenvalues of the K x K matrix W_V (W_E W_U) W_O, besides zeros. The mean of W_U over the
    vocabulary is taken off, which changes no probability.

    Raises:
        ClearheadError: this stack's stream is not read by scores of its own tokens, linear in it.
    """
    reason = no_copying(part)
    if reason is not None:
        raise ClearheadError(f"copying can't be told here: {reason}")
    embed_ND, unembed_ND = _ends(part.model, seed)
    order = torch.randperm(len(embed_ND), generator=torch.Generator().manual_seed(seed))
    through_2DD = torch.stack([embed_ND.T @ unembed_ND, embed_ND.T @ unembed_ND[order]])
    where, found, controls = [], [], []
    for layer in part.layers:
        m = matrices(part.stack.layers[layer])
        for head, (v_VD, o_DV) in enumerate(zip(m.v_HVD, m.o_HDV, strict=True)):
            score, control = positive_share(torch.linalg.eigvals(v_VD @ through_2DD @ o_DV)).tolist()
            where.append((layer, head))
            found.append(score)
            controls.append(control)
    mean, spread = statistics.fmean(controls), statistics.pstdev(controls)
    return {place: Copying(score, mean, spread) for place, score in zip(where, found, strict=True)}


def no_copying(part: Part) -> str | None:
    """Why copying has no meaning for this stack; None where it has."""
    model = part.model
    if not part.is_output or model.head is None or model.embed.tokens is None:
        return "no head reads tokens out of this stack"
    if model.head.transform is not None or model.embed.project is not None:
        return "between the stream and the tokens stands more than one matrix"
    return None


def positive_share(eigenvalues: Tensor) -> Tensor:
    """sum(Re l) / sum(|l|) over the last dimension."""
    return eigenvalues.real.sum(-1) / eigenvalues.abs().sum(-1).clamp(min=torch.finfo(torch.float32).tiny)


def _ends(model: Transformer, seed: int) -> tuple[Tensor, Tensor]:
    """Vectors of a sample of tokens as they enter, and as they are read out by the final norm's scale and the head."""
    assert model.embed.tokens is not None
    embed_VD, unembed_VD = model.embed.tokens.weight.detach(), model.unembedding.detach()
    n = min(len(embed_VD), len(unembed_VD))
    ids = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:SAMPLE].to(embed_VD.device)
    unembed_ND = (_weight(unembed_VD[ids]) - _weight(unembed_VD.float().mean(0))) * _scale(model.norm)
    return _weight(embed_VD[ids]), unembed_ND


# ---- composition


@dataclass(frozen=True)
class Reads:
    """A head that reads, by its queries, keys or values, what a head of an earlier layer writes. `share` is
    |W_read W_OV| / (|W_read| |W_OV|) by Frobenius norms, `times` how many times what is typical of the reader.
    """

    layer: int
    head: int
    way: Way
    share: float
    times: float


@dataclass(frozen=True)
class Composition:
    """`shares[way][l2, l1]` is (H2, H1): how much heads of layer l2 read of those of an earlier layer l1."""

    shares: Mapping[Way, Mapping[tuple[int, int], Tensor]]
    chance: float
    """What two matrices that have nothing to do with each other would have: D^-1/2, for a stream of width D."""

    def strongest(self, layer: int, head: int, most: int = 3) -> tuple[Reads, ...]:
        """What a head reads most, of all ways together, strongest first; only what is twice the typical or more.

        Typical of a head and a way is the median over all earlier heads; `chance`, where that is less (Elhage 2021
        takes off that of random matrices: norms with a few large scales bring all of a model's below it).
        """
        found = []
        for way, pairs in self.shares.items():
            earlier = {before: shares_HH[head] for (later, before), shares_HH in pairs.items() if later == layer}
            if not earlier:
                continue
            typical = min(float(torch.cat(list(earlier.values())).median()), self.chance)
            for before, shares_H in earlier.items():
                for writer, share in enumerate(shares_H.tolist()):
                    if share >= 2 * typical > 0:
                        found.append(Reads(before, writer, way, share, share / typical))
        return tuple(sorted(found, key=lambda reads: -reads.times)[:most])


def composition(part: Part) -> Composition:
    """Q-, K- and V-composition of every two heads in order (Elhage 2021, section "Two-layer attention-only
    transformers"): |W_QK^T W_OV|, |W_QK W_OV| and |W_OV W_OV| by their factors' norms.

    With R^T R = W_O^T W_O, |W_O W_V A| = |R W_V A|, and so with the others: each pair costs one K x D x K product.
    """
    writers: dict[int, Tensor] = {}
    shares: dict[Way, dict[tuple[int, int], Tensor]] = {"q": {}, "k": {}, "v": {}}
    width = 1
    for layer in part.layers:
        m = matrices(part.stack.layers[layer])
        width = m.q_HKD.shape[-1]
        readers: dict[Way, Tensor] = {
            "q": _root(m.k_HKD @ m.k_HKD.mT) @ m.q_HKD,
            "k": _root(m.q_HKD @ m.q_HKD.mT) @ m.k_HKD,
            "v": _root(m.o_HDV.mT @ m.o_HDV) @ m.v_HVD,
        }
        for way, reader_HKD in readers.items():
            for earlier, writer_HDK in writers.items():
                shares[way][layer, earlier] = _shares(reader_HKD, writer_HDK)
        writers[layer] = m.o_HDV @ _root(m.v_HVD @ m.v_HVD.mT).mT
    return Composition(shares, width**-0.5)


def _root(gram_HKK: Tensor) -> Tensor:
    """R with R^T R = the Gram matrix, which may lack rank."""
    values_HK, vectors_HKK = torch.linalg.eigh(gram_HKK)
    root_HKK: Tensor = values_HK.clamp(min=0).sqrt()[..., None] * vectors_HKK.mT
    return root_HKK


def _shares(reader_HKD: Tensor, writer_hDK: Tensor) -> Tensor:
    """(H, h): the norms of all products, by those of their factors."""
    n_heads, d_out, width = reader_HKD.shape
    n_writers, _, d_in = writer_hDK.shape
    product = reader_HKD.reshape(-1, width) @ writer_hDK.transpose(0, 1).reshape(width, -1)
    norms_Hh: Tensor = product.view(n_heads, d_out, n_writers, d_in).square().sum((1, 3)).sqrt()
    factors_Hh: Tensor = reader_HKD.flatten(1).norm(dim=1)[:, None] * writer_hDK.flatten(1).norm(dim=1)
    return norms_Hh / factors_Hh.clamp(min=torch.finfo(torch.float32).tiny)
