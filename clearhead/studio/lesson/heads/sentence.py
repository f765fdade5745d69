"""Several heads on one sentence: each with its own matrices and its own pattern, side by side, times W_O."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from clearhead.claims.scaled.ten_words import SENTENCE
from clearhead.studio.lesson.heads import by_hand
from clearhead.studio.operations import Answer, operation

MIXER = "layers.0.mixer"


@operation("heads.sentence")
def sentence(
    *,
    head: Annotated[int, Field(ge=0, lt=len(by_hand.ROLES))] = 0,
    q: Annotated[int, Field(ge=0, lt=len(SENTENCE))] = 7,
    k: Annotated[int, Field(ge=0, lt=len(SENTENCE))] = 6,
    causal: bool = False,
) -> Answer:
    """All patterns, and of one head its matrices, vectors and the working of one cell."""
    seen = by_hand.seen(causal)
    weights, role = by_hand.heads()[head], by_hand.ROLES[head]
    q_TK, k_SK, v_SK, z_TK = (seen[f"{MIXER}.{name}"][0, head] for name in ("q", "k", "v", "z"))
    pattern_HTS, scores_TS = seen[f"{MIXER}.pattern"][0], seen[f"{MIXER}.scores"][0, head]
    row_S = pattern_HTS[head, q]
    side_by_side_TE = seen[f"{MIXER}.z"][0].transpose(0, 1).flatten(1)
    largest_HT, words_HT = pattern_HTS.max(-1)
    o_DE = by_hand.model(causal).get_parameter(f"{MIXER}.o_proj.weight").detach()
    return Answer(
        data={
            "sentence": SENTENCE,
            "names": by_hand.NAMES,
            "roles": [{"name": one.name, "does": one.does, "dimensions": one.dimensions} for one in by_hand.ROLES],
            "head": head,
            "q": q,
            "k": k,
            "causal": causal,
            "hidden": causal and k > q,
            "role": role.name,
            "dimensions": role.dimensions,
            "width": by_hand.WIDTH,
            "d_head": by_hand.D_HEAD,
            "d_all": side_by_side_TE.shape[1],
            "products": (q_TK[q] * k_SK[k]).tolist(),
            "score": float((q_TK[q] * k_SK[k]).sum()),
            "divisor": by_hand.D_HEAD**0.5,
            "weight": float(row_S[k]),
            "largest": [
                {"word": int(word), "weight": float(weight)}
                for word, weight in zip(words_HT[:, q], largest_HT[:, q], strict=True)
            ],
            "parameters": sum(
                by_hand.model(causal).get_parameter(f"{MIXER}.{name}_proj.weight").numel() for name in "qkvo"
            ),
        },
        arrays={
            "x": seen["embed"][0],
            "patterns": pattern_HTS,
            "scores": scores_TS,
            "w_q": weights.q_KD,
            "w_k": weights.k_KD,
            "w_v": weights.v_KD,
            "w_o": o_DE,
            "q": q_TK,
            "k": k_SK,
            "v": v_SK,
            "z": z_TK,
            "side_by_side": side_by_side_TE,
            "out": seen[f"{MIXER}.out"][0],
            "after": seen["layers.0.resid_post"][0],
        },
        python=(
            "import clearhead\n"
            "from clearhead.studio.lesson.heads.by_hand import model\n\n"
            f"attention = model(causal={causal})  # one layer, four heads, weights set by hand\n"
            f'seen = clearhead.look(attention, list(range(10)), "{MIXER}.pattern", "{MIXER}.out")\n'
            f'print(*seen["{MIXER}.pattern"][0, {head}, {q}].tolist())  # {role.name}, from "{SENTENCE[q]}"\n'
        ),
        printed=tuple(row_S.tolist()),
    )
