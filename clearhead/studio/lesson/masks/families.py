"""Chapter 7: which token may see which, in the three families and as it is drawn by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from clearhead.claims.ingredients.one_head import scale_of
from clearhead.claims.masks.both_ways import published
from clearhead.claims.scaled.ten_words import DIMENSIONS, SENTENCE, vectors
from clearhead.errors import UsageError
from clearhead.ops.attention import Trace, traced
from clearhead.ops.masks import Around, BoundMask, Causal, Everything, Mask, Prefix, SameDocument, Window, bind
from clearhead.studio.operations import Answer, operation

WORDS = 12
"""A map of more words has no room for their names."""
N = len(SENTENCE)
FIRST_DOCUMENT = SENTENCE.index("because")
Preset = Literal["full", "causal", "prefix", "window", "around", "documents", "drawn"]


@operation("masks.families")
def families(
    *,
    text: Annotated[str, Field(max_length=200)] = "The cat sat on the mat",
    target: Annotated[str, Field(max_length=200)] = "Die Katze saß auf der Matte",
) -> Answer:
    """The masks of an encoder, a decoder, and an encoder-decoder that writes `target`, on one sentence."""
    read, written = _words("sentence", text), _words("translation", target)
    masks = {
        "encoder": bind(Everything(), len(read), len(read)),
        "decoder": bind(Causal(), len(read), len(read)),
        "source": bind(Everything(), len(read), len(read)),
        "target": bind(Causal(), len(written), len(written)),
        "cross": bind(Everything(), len(written), len(read)),
    }
    arrays = {name: mask.dense[0, 0].to(torch.uint8) for name, mask in masks.items()}
    totals = {name: int(cells.sum()) for name, cells in arrays.items()}
    return Answer(
        data={
            "words": read,
            "target": written,
            "totals": totals,
            "cells": {name: cells.numel() for name, cells in arrays.items()},
            "seen": {name: cells.sum(-1).tolist() for name, cells in arrays.items()},
            "published": [{"model": model, "masks": kinds} for model, kinds in published().items()],
        },
        arrays=arrays,
        python=_FAMILIES.format(n=len(read), m=len(written)),
        printed=tuple(float(totals[name]) for name in ("encoder", "decoder", "source", "target", "cross")),
    )


_FAMILIES = """\
from clearhead.ops.masks import Causal, Everything, bind

n, m = {n}, {m}  # words of the sentence, and of its translation
masks = {{
    "encoder": bind(Everything(), n, n),
    "decoder": bind(Causal(), n, n),
    "encoder-decoder, source on source": bind(Everything(), n, n),
    "encoder-decoder, target on target": bind(Causal(), m, m),
    "encoder-decoder, target on source": bind(Everything(), m, n),
}}
for name, mask in masks.items():
    print(f"{{name}}: {{int(mask.dense.sum())}} pairs may meet")
"""


def _words(what: str, text: str) -> list[str]:
    words = text.split()
    if not 1 <= len(words) <= WORDS:
        raise UsageError(f"the {what} has {len(words)} words; give 1 to {WORDS}, so that a mask of them can be read")
    return words


# ---- a mask drawn by hand


@dataclass(frozen=True, eq=False)
class Drawn(Mask):
    """Whatever was drawn: `cells_TS[q, k]` is True where query q may see key k."""

    cells_TS: Tensor

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return self.cells_TS[q_pos, k_pos]


@operation("masks.draw")
def draw(
    *,
    preset: Preset = "causal",
    cells: Annotated[str, Field(pattern=r"^([0-9a-f]{25})?$")] = "",
    size: Annotated[int, Field(ge=1, le=N)] = 3,
    q: Annotated[int, Field(ge=0, lt=N)] = SENTENCE.index("it"),
) -> Answer:
    """Attention of the ten words under a mask, beside attention that sees everything.

    `cells` are the hundred cells of a drawn mask, row by row, four to a hexadecimal digit; `size` is the reach of a
    window, or the length of a prefix.
    """
    drawn = _from_hex(cells) if preset == "drawn" else None
    mask = bind(_mask(preset, size, drawn), N, N)
    free, seen = _attention(bind(Everything(), N, N)), _attention(mask)
    allowed_TS = mask.dense[0, 0]
    weights_TS, before_TS = seen.pattern_BHTS[0, 0], free.pattern_BHTS[0, 0]
    out_TV, out_before_TV = seen.z_BHTV[0, 0], free.z_BHTV[0, 0]
    hidden = float((weights_TS * ~allowed_TS).max())
    changed_T = (weights_TS != before_TS).any(-1)
    empty_T = ~allowed_TS.any(-1)
    return Answer(
        data={
            "preset": preset,
            "size": size,
            "q": q,
            "words": SENTENCE,
            "dimensions": DIMENSIONS,
            "cells": _to_hex(allowed_TS),
            "allowed": int(allowed_TS.sum()),
            "hidden": int((~allowed_TS).sum()),
            "largest_hidden": hidden,
            "n_changed": int(changed_T.sum()),
            "changed": changed_T.tolist(),
            "empty": empty_T.tolist(),
            "row": weights_TS[q].tolist(),
            "row_before": before_TS[q].tolist(),
            "row_sum": float(weights_TS[q].sum()),
            "out": out_TV[q].tolist(),
            "out_before": out_before_TV[q].tolist(),
            "weights_moved": (weights_TS - before_TS).abs().amax(-1).tolist(),
            "outputs_moved": (out_TV - out_before_TV).abs().amax(-1).tolist(),
        },
        arrays={
            "mask": allowed_TS.to(torch.uint8),
            "weights": weights_TS,
            "weights_before": before_TS,
            "scores": seen.scores_BHTS[0, 0],
            "scores_before": free.scores_BHTS[0, 0],
            "values": vectors()[2][0],
            "out": out_TV,
            "out_before": out_before_TV,
        },
        python=_drawing(preset, size, drawn, q),
        printed=(*weights_TS[q].tolist(), *out_TV[q].tolist(), hidden, float(changed_T.sum())),
    )


def _attention(mask: BoundMask) -> Trace:
    q_BHTK, k_BHSK, v_BHSV = (x[:, None] for x in vectors())
    return traced(q_BHTK, k_BHSK, v_BHSV, mask, scale=scale_of(len(DIMENSIONS)))


def _mask(preset: Preset, size: int, drawn: Tensor | None) -> Mask:
    presets: dict[str, Mask] = {
        "full": Everything(),
        "causal": Causal(),
        "prefix": Causal() | Prefix(torch.tensor([size])),
        "window": Causal() & Window(size),
        "around": Around(size),
        "documents": Causal() & SameDocument((torch.arange(N) >= FIRST_DOCUMENT).int()[None]),
    }
    return presets[preset] if drawn is None else Drawn(drawn)


def _expression(preset: Preset, size: int) -> str:
    """The same mask as code."""
    return {
        "full": "Everything()",
        "causal": "Causal()",
        "prefix": f"Causal() | Prefix(torch.tensor([{size}]))",
        "window": f"Causal() & Window({size})",
        "around": f"Around({size})",
        "documents": f"Causal() & SameDocument((torch.arange({N}) >= {FIRST_DOCUMENT}).int()[None])",
        "drawn": "Drawn()",
    }[preset]


_DRAWN = """
rows = \"\"\"
{rows}
\"\"\".split()  # a row for each word that reads; 1: may be read
cells = torch.tensor([[cell == "1" for cell in row] for row in rows])


class Drawn(Mask):
    def allow(self, q_pos, k_pos, batch):
        return cells[q_pos, k_pos]

"""
_DRAWING = """\
import torch
from clearhead.claims.scaled.ten_words import DIMENSIONS, SENTENCE, vectors
from clearhead.ops.attention import traced
from clearhead.ops.masks import {names}, bind
{drawn}
q, k, v = (x[:, None] for x in vectors())
mask = bind({mask}, len(SENTENCE), len(SENTENCE))
free = bind(Everything(), len(SENTENCE), len(SENTENCE))
seen = traced(q, k, v, mask, scale=len(DIMENSIONS) ** -0.5)
weights, out = seen.pattern_BHTS[0, 0], seen.z_BHTV[0, 0]
before = traced(q, k, v, free, scale=len(DIMENSIONS) ** -0.5).pattern_BHTS[0, 0]

for word, weight in zip(SENTENCE, weights[{q}].tolist()):
    print(f"{{SENTENCE[{q}]}} reads {{word}}: {{weight:.9f}}")
for name, part in zip(DIMENSIONS, out[{q}].tolist()):
    print(f"and becomes, {{name}}: {{part:.9f}}")
print("largest hidden weight:", float((weights * ~mask.dense[0, 0]).max()))
print("rows that are not as before:", int((weights != before).any(-1).sum()))
"""


def _drawing(preset: Preset, size: int, drawn: Tensor | None, q: int) -> str:
    mask = _expression(preset, size)
    known = ("Around", "Causal", "Everything", "Mask", "Prefix", "SameDocument", "Window")
    wanted = {"Everything", *(name for name in known if f"{name}(" in mask), *(["Mask"] if drawn is not None else [])}
    rows = [] if drawn is None else ["".join("01"[int(cell)] for cell in row) for row in drawn.tolist()]
    return _DRAWING.format(
        names=", ".join(sorted(wanted)),
        drawn="" if drawn is None else _DRAWN.format(rows="\n".join(rows)),
        mask=mask,
        q=q,
    )


def _to_hex(cells_TS: Tensor) -> str:
    bits = "".join("01"[int(cell)] for cell in cells_TS.flatten().tolist())
    return f"{int(bits, 2):025x}"


def _from_hex(cells: str) -> Tensor:
    if not cells:
        raise UsageError("a drawn mask needs its cells: 25 hexadecimal digits, a bit for each pair of the ten words")
    bits = f"{int(cells, 16):0{N * N}b}"
    return torch.tensor([bit == "1" for bit in bits]).view(N, N)
