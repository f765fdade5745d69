"""From the scores of the next token to the token: penalties, temperature, top-k, top-p, min-p, and the draw.

Every function is pure and works row by row: a row's answer depends on its own scores and settings, never on its
neighbours. A setting is one number for all rows, or one a row. What a filter drops becomes minus infinity, so filters
compose in any order; `adjust` applies them in the order of the `transformers` package, and agrees with it.
All arithmetic is float32, sums over the vocabulary in the draw float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.errors import UsageError

Number = int | float | Sequence[int | float]
"""A setting: one number for all rows, or one a row."""

NOTHING_LEFT = -1
"""The token `draw` and `greedy` answer for a row that offers none: all scores are minus infinity, or one is NaN."""

_SHORTLIST = 1024
"""Top-p sorts this many best tokens first: 1.2 ms against 27 ms for all 262,144 of Gemma's vocabulary."""
_ROUNDING = 1e-6
"""A nucleus whose mass misses top_p by less has reached it: float32 sums of probabilities are no finer."""
_BLOCK = 512
_DWARFS = 1e30
_TINIEST = 1e-7
"""The least divisor: scores and forced ones divided by it stay finite in float32, and scores apart stay apart."""


# ---- one setting at a time


def add_bias(logits_BV: Float[Tensor, "B V"], bias: Mapping[int, float]) -> Float[Tensor, "B V"]:
    """Add `bias[id]` to the score of each token named: minus infinity forbids a token, plus infinity forces it."""
    ids = torch.tensor(list(bias), dtype=torch.long, device=logits_BV.device)
    # An infinite score would make NaN of a softmax: a token is forced by one that only dwarfs all others.
    added = [min(value, _DWARFS) for value in bias.values()]
    values = torch.tensor(added, dtype=torch.float32, device=logits_BV.device)
    if len(bias) and not 0 <= min(bias) <= max(bias) < logits_BV.shape[-1]:
        raise UsageError(f"logit_bias names a token outside 0 to {logits_BV.shape[-1] - 1}: {sorted(bias)}")
    return logits_BV.float().index_add(-1, ids, values.expand(logits_BV.shape[0], -1))


def penalise_repeats(logits_BV: Float[Tensor, "B V"], seen_BV: Tensor, penalty: Number) -> Float[Tensor, "B V"]:
    """Make the tokens seen less likely (CTRL, Keskar 2019, section 4.1): positive scores are divided by `penalty`,
    negative ones multiplied. 1 is off. `seen_BV` is nonzero where a token stands in the text so far, prompt included.
    """
    logits_BV = logits_BV.float()
    rows = _rows(penalty, len(logits_BV), "repetition_penalty", least=_TINIEST)
    if all(row == 1 for row in rows):
        return logits_BV
    penalty_B1 = _column(rows, logits_BV)
    changed_BV = torch.where(logits_BV < 0, logits_BV * penalty_B1, logits_BV / penalty_B1)
    return torch.where(seen_BV != 0, changed_BV, logits_BV)


def penalise_counts(
    logits_BV: Float[Tensor, "B V"], count_BV: Tensor, presence: Number = 0.0, frequency: Number = 0.0
) -> Float[Tensor, "B V"]:
    """Subtract `presence` from tokens drawn at least once and `frequency` for each time drawn (OpenAI's definition).
    `count_BV` counts the tokens drawn so far, prompt not included. 0 is off.
    """
    present_rows = _rows(presence, len(logits_BV), "presence_penalty")
    frequent_rows = _rows(frequency, len(logits_BV), "frequency_penalty")
    logits_BV = logits_BV.float()
    if any(present_rows):
        logits_BV = logits_BV - _column(present_rows, logits_BV) * (count_BV > 0)
    if any(frequent_rows):
        logits_BV = logits_BV - _column(frequent_rows, logits_BV) * count_BV
    return logits_BV


def scale_temperature(logits_BV: Float[Tensor, "B V"], temperature: Number) -> Float[Tensor, "B V"]:
    """Divide by the temperature. A row at 0 is left as it is: its token is the best one, and nothing is divided."""
    rows = _rows(temperature, len(logits_BV), "temperature", least=0.0)
    if all(row in (0, 1) for row in rows):
        return logits_BV.float()
    return logits_BV.float() / _column([max(row, _TINIEST) if row else 1.0 for row in rows], logits_BV)


def keep_top_k(logits_BV: Float[Tensor, "B V"], top_k: Number) -> Float[Tensor, "B V"]:
    """Keep the `top_k` best tokens, and those that tie with the last of them. 0, or as many as there are, keeps all."""
    logits_BV = logits_BV.float()
    size = logits_BV.shape[-1]
    rows = [min(int(k), size) or size for k in _rows(top_k, len(logits_BV), "top_k", least=0.0)]
    most = max((k for k in rows if k < size), default=0)
    if most == 0:
        return logits_BV
    best_BK = logits_BV.topk(most, dim=-1).values
    least_B1 = best_BK.gather(-1, torch.tensor([[min(k, most) - 1] for k in rows], device=logits_BV.device))
    all_B1 = torch.tensor([[k == size] for k in rows], device=logits_BV.device)
    return torch.where((logits_BV >= least_B1) | all_B1, logits_BV, -math.inf)


def keep_top_p(logits_BV: Float[Tensor, "B V"], top_p: Number) -> Float[Tensor, "B V"]:
    """Keep the smallest set of best tokens whose probabilities reach `top_p` (nucleus sampling, Holtzman 2020).
    The best token always stays; 1 keeps all.
    """
    logits_BV = logits_BV.float()
    rows = _rows(top_p, len(logits_BV), "top_p", least=0.0, most=1.0)
    if min(rows, default=1.0) == 1:
        return logits_BV
    top_p_B1 = _column(rows, logits_BV)
    probs_BV = logits_BV.softmax(-1)
    size = logits_BV.shape[-1]
    ordered_BC, ids_BC = _largest(probs_BV, _SHORTLIST)
    sums_BC = ordered_BC.cumsum(-1)
    if sums_BC.shape[-1] < size and not bool(((sums_BC[:, -1:] >= top_p_B1) | (top_p_B1 >= 1)).all()):
        ordered_BC, ids_BC = _largest(probs_BV, size)
        sums_BC = ordered_BC.cumsum(-1)
    kept_BC = (sums_BC - ordered_BC) < top_p_B1 - _ROUNDING
    kept_BC[:, 0] = True
    kept_BV = torch.zeros_like(logits_BV, dtype=torch.bool).scatter_(-1, ids_BC, kept_BC)
    return torch.where(kept_BV | (top_p_B1 >= 1), logits_BV, -math.inf)


def keep_min_p(logits_BV: Float[Tensor, "B V"], min_p: Number) -> Float[Tensor, "B V"]:
    """Keep the tokens at least `min_p` times as likely as the best one (Nguyen 2024). 0 keeps all, 1 the best."""
    logits_BV = logits_BV.float()
    rows = _rows(min_p, len(logits_BV), "min_p", least=0.0, most=1.0)
    if max(rows, default=0.0) == 0:
        return logits_BV
    min_p_B1 = _column(rows, logits_BV)
    probs_BV = logits_BV.softmax(-1)
    return torch.where(probs_BV >= min_p_B1 * probs_BV.amax(-1, keepdim=True), logits_BV, -math.inf)


def adjust(
    logits_BV: Float[Tensor, "B V"],
    *,
    temperature: Number = 1.0,
    top_k: Number = 0,
    top_p: Number = 1.0,
    min_p: Number = 0.0,
) -> Float[Tensor, "B V"]:
    """Temperature, then top-k, then top-p, then min-p: the scores of the tokens that may still be drawn."""
    logits_BV = scale_temperature(logits_BV, temperature)
    return keep_min_p(keep_top_p(keep_top_k(logits_BV, top_k), top_p), min_p)


# ---- choosing


def greedy(logits_BV: Float[Tensor, "B V"]) -> Int[Tensor, " B"]:
    """The best token of each row, the first of those that tie; NOTHING_LEFT for a row of NaN or of minus infinity.

    In two steps, the best of each block and the best within that block: over a large vocabulary torch's argmax on a CPU
    is ten times slower than its maximum (0.70 against 0.05 ms for 262,144 float32 scores).
    """
    size, block = logits_BV.shape[-1], _BLOCK
    n_blocks = size // block
    if n_blocks < 2:
        best_B, ids_B = logits_BV.max(-1)
    else:
        blocks_BNC = logits_BV[:, : n_blocks * block].view(-1, n_blocks, block)
        best_B, n_B = blocks_BNC.amax(-1).max(-1)
        row_B = torch.arange(len(n_B), device=n_B.device)
        ids_B = n_B * block + blocks_BNC[row_B, n_B].argmax(-1)
        if n_blocks * block < size:
            rest_B, rest_ids_B = logits_BV[:, n_blocks * block :].max(-1)
            # "not <=" rather than ">": a NaN in the rest has to win, as it does within a block
            better_B = ~(rest_B <= best_B) & ~best_B.isnan()
            ids_B = torch.where(better_B, rest_ids_B + n_blocks * block, ids_B)
            best_B = torch.where(better_B, rest_B, best_B)
    return torch.where(best_B > -math.inf, ids_B, NOTHING_LEFT)


def draw(logits_BV: Float[Tensor, "B V"], uniform: Sequence[float]) -> Int[Tensor, " B"]:
    """One token a row, with the probabilities of `softmax(logits_BV)`, by inverting their running sum at `uniform`,
    one number in [0, 1) a row. A token at minus infinity is never drawn. NOTHING_LEFT where a row offers no token.
    """
    probs_BV = logits_BV.float().softmax(-1)
    # In two steps, the block and the token within it: a running sum of 262,144 float64 numbers is slower.
    n_rows, size = probs_BV.shape
    blocks_BNC = torch.nn.functional.pad(probs_BV, (0, -size % _BLOCK)).view(n_rows, -1, _BLOCK)
    at_B1 = torch.tensor(uniform, dtype=torch.float64, device=logits_BV.device)[:, None]
    block_B1, total_B1, rest_B1 = _invert(blocks_BNC.sum(-1, dtype=torch.float64), at_B1)
    row_B = torch.arange(n_rows, device=logits_BV.device)
    within_BC = blocks_BNC[row_B, block_B1[:, 0]].double()
    place_B1, _, _ = _invert(within_BC, rest_B1)
    ids_B = (block_B1 * _BLOCK + place_B1)[:, 0]
    return torch.where(total_B1[:, 0] > 0, ids_B, NOTHING_LEFT)  # NaN is not above 0


def acceptance(logits_V: Float[Tensor, " V"], draft_V: Float[Tensor, " V"], token: int) -> float:
    """min(1, p / q): with what probability a token that was drawn with probabilities q = `draft_V` stands for one drawn
    from p = `softmax(logits_V)` (Leviathan 2023, section 2.3; Chen 2023, algorithm 2).
    """
    own, theirs = float(logits_V.float().softmax(-1)[token]), float(draft_V[token])
    return min(1.0, own / theirs) if theirs > 0 else 1.0


def what_is_left(logits_V: Float[Tensor, " V"], draft_V: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
    """Scores whose softmax is max(0, p - q), over its sum: what is drawn in place of a token that was not accepted.
    Those of p where nothing is left: p is q then, but for rounding.
    """
    left_V = (logits_V.float().softmax(-1) - draft_V).clamp(min=0)
    return left_V.log() if bool((left_V > 0).any()) else logits_V.float()


def uniform(seed: int, stream: int, position: int) -> float:
    """A number in [0, 1), 53 bits of it, that depends on the three integers and nothing else.

    Counter-based (SplitMix64's finaliser, Steele 2014, once a key): a text drawn from a seed is the same on every
    device, in every batch, and whether it was drawn in one go or continued.
    """
    bits = 0
    for key in (seed, stream, position):
        bits = _scramble(bits ^ _scramble(key + 0x9E3779B97F4A7C15))
    return (bits >> 11) * 2.0**-53


def log_probs(logits_BV: Float[Tensor, "B V"], tokens_B: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """The natural logarithm of the probability the model itself gives each token: no filter, no temperature."""
    logits_BV = logits_BV.float()
    return logits_BV.gather(-1, tokens_B[:, None])[:, 0] - logits_BV.logsumexp(-1)


# ---- helpers


def _scramble(bits: int) -> int:
    mask = 0xFFFFFFFFFFFFFFFF
    bits &= mask
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & mask
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & mask
    return bits ^ (bits >> 31)


def _invert(share_BN: Tensor, at_B1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which share of a row the number `at` in [0, 1) falls on, the sum of all, and how far into that share it is.

    A share of 0 is never hit.
    """
    sums_BN = share_BN.cumsum(-1)
    total_B1 = sums_BN[:, -1:]
    # The product may round up to the total, where no share lies: stay one step below.
    goal_B1 = torch.minimum(at_B1 * total_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    index_B1 = torch.searchsorted(sums_BN, goal_B1, right=True).clamp(max=share_BN.shape[-1] - 1)
    share_B1 = share_BN.gather(-1, index_B1)
    into_B1 = (goal_B1 - (sums_BN.gather(-1, index_B1) - share_B1)) / share_B1
    return index_B1, total_B1, into_B1.clamp(0, 1)


def _largest(probs_BV: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The `n` largest of each row in falling order, and where they stand."""
    if probs_BV.shape[-1] > max(n, 4 * _SHORTLIST):
        ordered = probs_BV.topk(n, dim=-1)
        return ordered.values, ordered.indices
    ordered_BV, ids_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    return ordered_BV, ids_BV


def _rows(value: Number, n_rows: int, name: str, least: float = -math.inf, most: float = math.inf) -> list[float]:
    """A setting as one checked number a row."""
    rows = [float(value)] * n_rows if isinstance(value, (int, float)) else [float(row) for row in value]
    if len(rows) != n_rows:
        raise UsageError(f"{name} has {len(rows)} numbers for {n_rows} rows: give one for all, or one a row")
    for row in rows:
        if not least <= row <= most or not math.isfinite(row):
            between = f"between {least:g} and {most:g}" if most < math.inf else f"{least:g} or more"
            raise UsageError(f"{name} is {row:g}; it must be {between if least > -math.inf else 'a finite number'}")
    return rows


def _column(rows: list[float], logits_BV: Tensor) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32, device=logits_BV.device)[:, None]
