"""Selective state spaces: a state that every token decays, adds to and reads.

    h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t        y_t = C_t h_t

dt, B and C depend on the token: how much of the past to keep, what to write, what to read. With one decay a channel and
number of the state it is the scan of Mamba (Gu and Dao 2023, algorithm 2), with one decay a head that of Mamba-2, which
is attention with decays for a mask (Dao and Gu 2024, section 3). Each stands here three times: as a loop over tokens,
which is the truth; in chunks, which is fast and trains; and as one step.

A token with dt = 0 leaves the state alone (padding); where `start_BT` is true the state is forgotten first (documents).
Nothing is ever divided by a decay, so that a decay of any size is safe. States are in float32 or wider.

Shape letters beside the library's: F channels, H heads of K channels, G groups of heads, N numbers of the state,
Q and S tokens of one chunk.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

# ---- Mamba: one decay a channel and number of the state


def selective_states(
    x_BTF: Float[Tensor, "B T f"],
    dt_BTF: Float[Tensor, "B T f"],
    A_FN: Float[Tensor, "f n"],
    B_BTN: Float[Tensor, "B T n"],
    h_BFN: Float[Tensor, "B f n"],
    start_BT: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T f n"]:
    """The state after every token, by the formula, one token after another. `h_BFN` is the state before the first."""
    states = []
    for t in range(x_BTF.shape[1]):
        decay_BFN = torch.exp(dt_BTF[:, t, :, None] * A_FN)
        if start_BT is not None:
            decay_BFN = decay_BFN * ~start_BT[:, t, None, None]
        h_BFN = decay_BFN * h_BFN + (dt_BTF[:, t] * x_BTF[:, t])[:, :, None] * B_BTN[:, t, None]
        states.append(h_BFN)
    return torch.stack(states, dim=1)


def read_states(h_BTFN: Float[Tensor, "B T f n"], C_BTN: Float[Tensor, "B T n"]) -> Float[Tensor, "B T f"]:
    """y_t = C_t h_t."""
    return (h_BTFN @ C_BTN[..., None])[..., 0]


def selective_step(
    x_BF: Float[Tensor, "B f"],
    dt_BF: Float[Tensor, "B f"],
    A_FN: Float[Tensor, "f n"],
    B_BN: Float[Tensor, "B n"],
    C_BN: Float[Tensor, "B n"],
    h_BFN: Float[Tensor, "B f n"],
) -> tuple[Float[Tensor, "B f"], Float[Tensor, "B f n"]]:
    """One token: what is read, and the new state."""
    h_BFN = torch.exp(dt_BF[:, :, None] * A_FN) * h_BFN + (dt_BF * x_BF)[:, :, None] * B_BN[:, None]
    return (h_BFN @ C_BN[:, :, None])[..., 0], h_BFN


SEGMENT = 1024
"""Tokens scanned at once; longer texts are scanned one segment after another."""
TILE = 2**20
"""Numbers of state that a thread works on at once, so that they stay in the cache."""
NARROWEST = 32
"""The fewest channels in a tile: narrower ones are slow to multiply."""


def selective_scan(
    x_BTF: Float[Tensor, "B T f"],
    dt_BTF: Float[Tensor, "B T f"],
    A_FN: Float[Tensor, "f n"],
    B_BTN: Float[Tensor, "B T n"],
    C_BTN: Float[Tensor, "B T n"],
    h_BFN: Float[Tensor, "B f n"],
    start_BT: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T f"], Float[Tensor, "B f n"]]:
    """What every token reads, and the state after the last: the loop's result without its loop.

    The text is cut into about sqrt(T) chunks that are scanned side by side from a state of zeros; then the true states
    at their starts are worked out in order, and each chunk gets its share of them.
    """
    y_parts = []
    for first in range(0, x_BTF.shape[1], SEGMENT):
        n_tokens = min(SEGMENT, x_BTF.shape[1] - first)
        over = -n_tokens % chunk_size(n_tokens)
        # Filled up to whole chunks: a token with dt = 0 leaves the state alone.
        part = slice(first, first + n_tokens)
        texts = [F.pad(x[:, part], (0, 0, 0, over)) if over else x[:, part] for x in (x_BTF, dt_BTF, B_BTN, C_BTN)]
        start = None if start_BT is None else F.pad(start_BT[:, part], (0, over))
        y_BTF, h_BFN = cast(Any, _Scan).apply(*texts, A_FN, h_BFN, start)
        y_parts.append(y_BTF[:, :n_tokens])
    return (y_parts[0] if len(y_parts) == 1 else torch.cat(y_parts, dim=1)), h_BFN


class _Scan(torch.autograd.Function):
    """The scan tile by tile, and its gradient, which is the same scan from the end to the beginning.

    States are not kept for the gradient but made again. In a tile the channels come last, where they are multiplied
    fastest; the room for it is used again by the next.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, A: Tensor, h0: Tensor, start: Any) -> Any:
        ctx.save_for_backward(x, dt, B, C, A, h0, start)
        y, last = torch.empty_like(x), torch.empty_like(h0)
        tiles = _tiles(x, A.shape[1])
        room = _rooms(2, tiles, x, A.shape[1])
        for b, f in tiles:
            decay, h = _fill(room, x[b, :, f], dt[b, :, f], B[b], A[f], start if start is None else start[b])
            last[b, f] = scan_chunks(decay, h, h0[b, f].mT).mT
            y[b, :, f] = (C[b, :, None] @ h)[:, :, 0]
        return y, last

    @staticmethod
    def backward(ctx: Any, gy_BTF: Tensor, glast_BFN: Tensor) -> tuple[Tensor | None, ...]:
        x, dt, B, C, A, h0, start = ctx.saved_tensors
        gx, gdt, gh0 = torch.empty_like(x), torch.empty_like(dt), torch.empty_like(h0)
        gB, gC, gA = torch.zeros_like(B), torch.zeros_like(C), torch.zeros_like(A)
        tiles = _tiles(x, A.shape[1])
        rooms = _rooms(4, tiles, x, A.shape[1])
        for b, f in tiles:
            x_BTF, dt_BTF, gy, h0_BNF = x[b, :, f], dt[b, :, f], gy_BTF[b, :, f], h0[b, f].mT
            decay, h = _fill(rooms, x_BTF, dt_BTF, B[b], A[f], start if start is None else start[b])
            spare, g = (room[: decay.numel()].view(decay.shape) for room in rooms[2:])
            scan_chunks(decay, h, h0_BNF)
            gC[b] += (h @ gy[..., None])[..., 0]
            # What a state is worth: what its own token reads of it, and what the next token keeps of it.
            spare[:, :-1], spare[:, -1] = decay[:, 1:], 1.0
            torch.mul(C[b, :, :, None], gy[:, :, None], out=g)
            scan_chunks(spare, g, glast_BFN[b, f].mT, backwards=True)
            gh0[b, f] = (decay[:, 0] * g[:, 0]).mT
            gwrite_BTF = (B[b, :, None] @ g)[:, :, 0]
            gB[b] += (g @ (dt_BTF * x_BTF)[..., None])[..., 0]
            # The gradient of dt A: of the decay, times the decay.
            spare[:, 1:], spare[:, 0] = h[:, :-1], h0_BNF
            glog = spare.mul_(decay).mul_(g)
            gx[b, :, f] = gwrite_BTF * dt_BTF
            gdt[b, :, f] = gwrite_BTF * x_BTF + torch.mul(glog, A[f].mT, out=g).sum(2)
            gA[f] += torch.mul(glog, dt_BTF[:, :, None], out=g).sum((0, 1)).mT
        return gx, gdt, gB, gC, gA, gh0, None


def _tiles(x_BTF: Tensor, d_state: int) -> list[tuple[slice, slice]]:
    """Rows and channels in tiles of about `TILE` numbers of state. Compiled, there is one: a compiler tiles itself."""
    n_rows, n_tokens, n_channels = x_BTF.shape
    if torch.compiler.is_compiling():
        return [(slice(0, n_rows), slice(0, n_channels))]
    # torch shares out what is large enough among its threads.
    size = TILE * torch.get_num_threads()
    width = min(n_channels, max(NARROWEST, size // (n_tokens * d_state) // NARROWEST * NARROWEST))
    height = min(n_rows, max(1, size // (n_tokens * d_state * width)))
    return [
        (slice(b, min(b + height, n_rows)), slice(f, min(f + width, n_channels)))
        for b in range(0, n_rows, height)
        for f in range(0, n_channels, width)
    ]


def _rooms(n: int, tiles: list[tuple[slice, slice]], x_BTF: Tensor, d_state: int) -> list[Tensor]:
    """Room for `n` tensors of a tile; the first tile is the largest."""
    b, f = tiles[0]
    return [x_BTF.new_empty(b.stop * x_BTF.shape[1] * d_state * f.stop) for _ in range(n)]


def _fill(
    rooms: list[Tensor], x_BTF: Tensor, dt_BTF: Tensor, B_BTN: Tensor, A_FN: Tensor, start_BT: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A tile's decays and writes, (B, T, N, F) each, in the first two rooms."""
    shape = (*x_BTF.shape[:2], *A_FN.mT.shape)
    decay, write = (room[: math.prod(shape)].view(shape) for room in rooms[:2])
    torch.mul(dt_BTF[:, :, None], A_FN.mT.contiguous(), out=decay).exp_()
    if start_BT is not None:
        decay.mul_(~start_BT[:, :, None, None])
    torch.mul((dt_BTF * x_BTF)[:, :, None], B_BTN[..., None], out=write)
    return decay, write


def chunk_size(n_tokens: int) -> int:
    """The least power of two that is at least sqrt(n_tokens): about as many chunks as tokens in one."""
    return int(2 ** math.ceil(math.log2(n_tokens) / 2))


def scan_chunks(
    decay_BTNF: Float[Tensor, "B T n f"],
    write_BTNF: Float[Tensor, "B T n f"],
    h_BNF: Float[Tensor, "B n f"],
    backwards: bool = False,
) -> Float[Tensor, "B n f"]:
    """Work out h_t = decay_t h_{t-1} + write_t in the place of `write`, for T in whole chunks; returns the last.

    `backwards`: from the last token to the first, h_t = decay_t h_{t+1} + write_t.
    """
    size, way = chunk_size(decay_BTNF.shape[1]), -1 if backwards else 1
    decays, writes = (x.unflatten(1, (-1, size)).unbind(2)[::way] for x in (decay_BTNF, write_BTNF))
    # Of all chunks at once: what they make of a state of zeros, and what they leave of any other.
    end, left = writes[0].clone(), decays[0].clone()
    for decay, write in zip(decays[1:], writes[1:], strict=True):
        torch.addcmul(write, decay, end, out=end)
        left.mul_(decay)
    for made_BNF, left_BNF in zip(end.unbind(1)[::way], left.unbind(1)[::way], strict=True):
        after_BNF = torch.addcmul(made_BNF, left_BNF, h_BNF)
        # From here on `left` holds the states before the chunks.
        left_BNF.copy_(h_BNF)
        h_BNF = after_BNF
    for decay, write in zip(decays, writes, strict=True):
        left = write.addcmul_(decay, left)
    return h_BNF


# ---- Mamba-2: one decay a head


def head_states(
    x_BTHK: Float[Tensor, "B T h k"],
    dt_BTH: Float[Tensor, "B T h"],
    A_H: Float[Tensor, "h"],
    B_BTGN: Float[Tensor, "B T g n"],
    h_BHKN: Float[Tensor, "B h k n"],
    start_BT: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T h k n"]:
    """The state after every token, by the formula, one token after another. Heads of a group share B (and C)."""
    B_BTHN = B_BTGN.repeat_interleave(x_BTHK.shape[2] // B_BTGN.shape[2], dim=2)
    states = []
    for t in range(x_BTHK.shape[1]):
        decay_BH = torch.exp(dt_BTH[:, t] * A_H)
        if start_BT is not None:
            decay_BH = decay_BH * ~start_BT[:, t, None]
        write_BHKN = (dt_BTH[:, t, :, None] * x_BTHK[:, t])[..., None] * B_BTHN[:, t, :, None]
        h_BHKN = decay_BH[:, :, None, None] * h_BHKN + write_BHKN
        states.append(h_BHKN)
    return torch.stack(states, dim=1)


def read_head_states(h_BTHKN: Float[Tensor, "B T h k n"], C_BTGN: Float[Tensor, "B T g n"]) -> Float[Tensor, "B T h k"]:
    """y_t = C_t h_t in every head."""
    C_BTHN = C_BTGN.repeat_interleave(h_BTHKN.shape[2] // C_BTGN.shape[2], dim=2)
    return (h_BTHKN @ C_BTHN[..., None])[..., 0]


def head_step(
    x_BHK: Float[Tensor, "B h k"],
    dt_BH: Float[Tensor, "B h"],
    A_H: Float[Tensor, "h"],
    B_BGN: Float[Tensor, "B g n"],
    C_BGN: Float[Tensor, "B g n"],
    h_BHKN: Float[Tensor, "B h k n"],
) -> tuple[Float[Tensor, "B h k"], Float[Tensor, "B h k n"]]:
    """One token: what is read, and the new state."""
    n_groups = B_BGN.shape[1]
    write_BHK1 = (dt_BH[:, :, None] * x_BHK)[..., None]
    kept_BHKN = torch.exp(dt_BH * A_H)[:, :, None, None] * h_BHKN
    write_BGRK1 = write_BHK1.unflatten(1, (n_groups, -1))
    h_BGRKN = torch.addcmul(kept_BHKN.unflatten(1, (n_groups, -1)), write_BGRK1, B_BGN[:, :, None, None])
    y_BGLK = h_BGRKN.flatten(2, 3) @ C_BGN[..., None]
    return y_BGLK.view(x_BHK.shape), h_BGRKN.flatten(1, 2)


CHUNK = 64
"""Tokens of a chunk: within one the work grows with its square, and between chunks with their number."""


def head_scan(
    x_BTHK: Float[Tensor, "B T h k"],
    dt_BTH: Float[Tensor, "B T h"],
    A_H: Float[Tensor, "h"],
    B_BTGN: Float[Tensor, "B T g n"],
    C_BTGN: Float[Tensor, "B T g n"],
    h_BHKN: Float[Tensor, "B h k n"],
    start_BT: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T h k"], Float[Tensor, "B h k n"]]:
    """What every token reads, and the state after the last: matrix products within chunks, and a scan over chunks
    (Dao and Gu 2024, section 6).
    """
    parts = []
    for first in range(0, x_BTHK.shape[1], CHUNK):
        part = slice(first, first + CHUNK)
        run_BQ = None if start_BT is None else start_BT[:, part].cumsum(dim=1)
        y_BQHK, h_BHKN = _head_chunk(
            x_BTHK[:, part], dt_BTH[:, part], A_H, B_BTGN[:, part], C_BTGN[:, part], h_BHKN, run_BQ
        )
        parts.append(y_BQHK)
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)), h_BHKN


def _head_chunk(
    x_BQHK: Tensor, dt_BQH: Tensor, A_H: Tensor, B_BQGN: Tensor, C_BQGN: Tensor, h_BHKN: Tensor, run_BQ: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One chunk. Tokens of one chunk read each other as in attention, C for queries, B for keys, dt x for values, and
    the decay between two tokens for a mask; what came before the chunk they read from the state.

    `run_BQ` counts the restarts within the chunk up to each token.
    """
    n_groups = B_BQGN.shape[2]
    log_BHQ = (dt_BQH * A_H).mT
    between_BHQS = torch.exp(segment_sums(log_BHQ)).tril()
    since_BHQ = torch.exp(log_BHQ.cumsum(-1))
    if run_BQ is not None:
        between_BHQS = between_BHQS * (run_BQ[:, :, None] == run_BQ[:, None])[:, None]
        since_BHQ = since_BHQ * (run_BQ == 0)[:, None]
    # (B, G, R, ...): R heads in a group.
    between_BGRQS = between_BHQS.unflatten(1, (n_groups, -1))
    since_BGRQ = since_BHQ.unflatten(1, (n_groups, -1))
    value_BGRSK = (x_BQHK * dt_BQH[..., None]).transpose(1, 2).unflatten(1, (n_groups, -1))
    key_BGSN, query_BGQN = B_BQGN.transpose(1, 2), C_BQGN.transpose(1, 2)
    h_BGRKN = h_BHKN.unflatten(1, (n_groups, -1))

    scores_BGQS = query_BGQN @ key_BGSN.mT
    y_BGRQK = (scores_BGQS[:, :, None] * between_BGRQS) @ value_BGRSK
    from_state_BGQL = query_BGQN @ h_BGRKN.flatten(2, 3).mT
    from_state_BGRQK = from_state_BGQL.unflatten(-1, h_BGRKN.shape[2:4]).transpose(2, 3)
    y_BGRQK = y_BGRQK + from_state_BGRQK * since_BGRQ[..., None]

    left_BGRSK = value_BGRSK * between_BGRQS[..., -1, :, None]
    written_BGLN = left_BGRSK.transpose(3, 4).flatten(2, 3) @ key_BGSN
    h_BGRKN = since_BGRQ[..., -1, None, None] * h_BGRKN + written_BGLN.unflatten(2, h_BGRKN.shape[2:4])
    return y_BGRQK.flatten(1, 2).transpose(1, 2), h_BGRKN.flatten(1, 2)


def segment_sums(x: Float[Tensor, "*shape q"]) -> Float[Tensor, "*shape q q"]:
    """[i, j] is the sum of x from j + 1 to i (0 above the diagonal), added up and never as a difference of two sums,
    which would lose small numbers beside large ones (Dao and Gu 2024, listing 1).
    """
    n = x.shape[-1]
    below = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(-1)
    return (x[..., None] * below).cumsum(dim=-2)
