"""Score, scale, mask, normalise and mix, on ten words with vectors that mean something."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from clearhead.claims.ingredients.one_head import scale_of
from clearhead.claims.scaled.ten_words import CAT, DIMENSIONS, IT, SENTENCE, vectors
from clearhead.ops.attention import mask_scores, score, traced
from clearhead.ops.masks import Causal, Everything, Mask, bind
from clearhead.studio.operations import Answer, operation

Step = Literal["score", "scale", "mask", "softmax", "mix"]
MaskName = Literal["none", "causal"]
Sharpness = Annotated[float, Field(ge=0.1, le=4)]
Word = Annotated[int, Field(ge=0, lt=len(SENTENCE))]
MASKS: dict[MaskName, Mask] = {"none": Everything(), "causal": Causal()}


@dataclass(frozen=True)
class Walked:
    """Every step of one head over the ten words, in float64."""

    score_TS: Tensor
    scale_TS: Tensor
    mask_TS: Tensor
    softmax_TS: Tensor
    mix_TK: Tensor


def factor_of(beta: float, scale: bool) -> float:
    """What scores are multiplied by: the sharpness, and with the switch on the library's own 1 / sqrt(4)."""
    return beta * (scale_of(len(DIMENSIONS)) if scale else 1.0)


@lru_cache(maxsize=256)
def walk(beta: float, scale: bool, mask: MaskName) -> Walked:
    """The steps as the library takes them."""
    n, factor = len(SENTENCE), factor_of(beta, scale)
    q_BHTK, k_BHSK, v_BHSK = (x_1TK[None] for x_1TK in vectors())
    raw_BHTS = score(q_BHTK, k_BHSK)
    seen = traced(q_BHTK, k_BHSK, v_BHSK, bind(MASKS[mask], n, n), scale=factor)
    scaled_BHTS = mask_scores(raw_BHTS, bind(Everything(), n, n), scale=factor)
    steps = (raw_BHTS, scaled_BHTS, seen.scores_BHTS, seen.pattern_BHTS, seen.z_BHTV)
    return Walked(*(x_BHTS[0, 0] for x_BHTS in steps))


@operation("attention.stepper")
def stepper(
    *,
    q: Word = IT,
    k: Word = CAT,
    step: Step = "score",
    beta: Sharpness = 1.0,
    scale: bool = True,
    mask: MaskName = "none",
) -> Answer:
    """All cells at every step, and the working of one of them: word q reads word k."""
    cells = walk(beta, scale, mask)
    q_TK, k_SK, v_SK = (x_1TK[0] for x_1TK in vectors())
    weights_S, before_K, after_K = cells.softmax_TS[q], v_SK[q], cells.mix_TK[q]
    largest = int(weights_S.argmax())
    seen = q + 1 if mask == "causal" else len(SENTENCE)
    printed_step = {
        "score": cells.score_TS[q],
        "scale": cells.scale_TS[q],
        "mask": cells.mask_TS[q, :seen],
        "softmax": weights_S,
        "mix": after_K,
    }[step]
    return Answer(
        data={
            "sentence": SENTENCE,
            "dimensions": DIMENSIONS,
            "q": q,
            "k": k,
            "step": step,
            "beta": beta,
            "scale": scale,
            "mask": mask,
            "divisor": 1 / scale_of(len(DIMENSIONS)) if scale else 1.0,
            "seen": seen,
            "hidden": k >= seen,
            "products": (q_TK[q] * k_SK[k]).tolist(),
            "score": float(cells.score_TS[q, k]),
            "scaled": float(cells.scale_TS[q, k]),
            "weight": float(weights_S[k]),
            "best": int(cells.score_TS[q].argmax()),
            "largest": {"word": largest, "weight": float(weights_S[largest])},
            "before": before_K.tolist(),
            "after": after_K.tolist(),
            "gained": (after_K - before_K).tolist(),
        },
        arrays={
            "q": q_TK,
            "k": k_SK,
            "v": v_SK,
            "score": cells.score_TS,
            "scale": cells.scale_TS,
            "mask": cells.mask_TS,
            "softmax": cells.softmax_TS,
            "z": cells.mix_TK,
            "sums": cells.softmax_TS.sum(-1),
            "parts": weights_S[:, None] * v_SK,
        },
        python=code(q, step, beta, scale, mask),
        printed=tuple(printed_step.tolist()),
    )


def code(q: int, step: Step, beta: float, scale: bool, mask: MaskName) -> str:
    """The same in a few lines: one row of the step that is shown."""
    n, factor = len(SENTENCE), f"{beta!r} / 4**0.5" if scale else f"{beta!r}"
    rule = "Causal()" if mask == "causal" else "Everything()"
    seen = f"[: {q + 1}]" if mask == "causal" else ""
    lines = {
        "score": ["row = score(q, k)[0, 0, word]"],
        "scale": [f"row = mask_scores(score(q, k), bind(Everything(), {n}, {n}), scale={factor})[0, 0, word]"],
        "mask": [
            f"steps = traced(q, k, v, bind({rule}, {n}, {n}), scale={factor})",
            f"row = steps.scores_BHTS[0, 0, word]{seen}",
        ],
        "softmax": [
            f"steps = traced(q, k, v, bind({rule}, {n}, {n}), scale={factor})",
            "row = steps.pattern_BHTS[0, 0, word]",
        ],
        "mix": [
            f"steps = traced(q, k, v, bind({rule}, {n}, {n}), scale={factor})",
            "row = steps.z_BHTV[0, 0, word]  # noun, animate, action, object",
        ],
    }[step]
    names = {"score": "score", "scale": "mask_scores, score"}.get(step, "traced")
    masks = {"score": "", "scale": "from clearhead.ops.masks import Everything, bind\n"}.get(
        step, f"from clearhead.ops.masks import {rule[:-2]}, bind\n"
    )
    return (
        "from clearhead.claims.scaled.ten_words import vectors\n"
        f"from clearhead.ops.attention import {names}\n"
        f"{masks}\n"
        "q, k, v = (x[None] for x in vectors())  # 1 text, 1 head, 10 words, 4 dimensions\n"
        f"word = {q}  # {SENTENCE[q]}\n" + "\n".join(lines) + "\nprint(*row.tolist())\n"
    )
