"""What the divisor does to each of the ten rows: its largest weight, with it and without."""

from __future__ import annotations

from clearhead.claims.ingredients.one_head import entropy
from clearhead.claims.scaled.ten_words import SENTENCE
from clearhead.studio.lesson.attention.stepper import Sharpness, walk
from clearhead.studio.operations import Answer, operation


@operation("attention.rows")
def rows(*, beta: Sharpness = 1.0) -> Answer:
    """The largest weight and the entropy of each row, divided by sqrt(d) and not."""
    divided, undivided = (walk(beta, scale, "none") for scale in (True, False))
    with_TS, without_TS = divided.softmax_TS, undivided.softmax_TS
    with_T, without_T = with_TS.amax(-1), without_TS.amax(-1)
    return Answer(
        data={
            "sentence": SENTENCE,
            "beta": beta,
            "with": with_T.tolist(),
            "without": without_T.tolist(),
            "readers": with_TS.argmax(-1).tolist(),
            "entropy_with": entropy(with_TS).tolist(),
            "entropy_without": entropy(without_TS).tolist(),
            "risen": int((without_T > with_T).sum()),
        },
        arrays={"scaled": divided.scale_TS, "unscaled": undivided.scale_TS},
        python=(
            "from clearhead.claims.ingredients.one_head import pattern\n"
            "from clearhead.claims.scaled.ten_words import vectors\n\n"
            "q, k, v = vectors()\n"
            f"divided, not_divided = (pattern(q, k, scale={beta!r} * scale)[0] for scale in (1 / 4**0.5, 1.0))\n"
            "print(*divided.amax(-1).tolist())\n"
            "print(*not_divided.amax(-1).tolist())\n"
        ),
        printed=(*with_T.tolist(), *without_T.tolist()),
    )
