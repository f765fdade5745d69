"""Where weight goes that has nothing better to do, in a real model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from clearhead.claims.scaled.leftover_mass import FROM, WHERE, of_sentence
from clearhead.errors import UsageError
from clearhead.lens import look
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

TEXT = "The cat sat on the mat because it was tired, and nobody in the house wanted to move it."
MOST = 128


@operation("attention.leftover")
def leftover(
    studio: Studio,
    *,
    model: Annotated[str, Field(max_length=200)] = "clear-gpt",
    text: Annotated[str, Field(max_length=800)] = TEXT,
) -> Answer:
    """Of each layer, the share of attention on the first token, on punctuation and on the rest; and the least weight
    that any token gives to one it may see.
    """
    net = studio.models.get(model)
    if net.tokenizer is None or getattr(net.config, "encoder", None) is not None:
        raise UsageError(f"{model} does not read a text from left to right; choose clear-gpt or another decoder")
    ids = net.tokenizer.encode(text)
    if not FROM < len(ids) <= MOST:
        raise UsageError(f"this text is {len(ids)} tokens long; write {FROM + 1} to {MOST}")
    with studio.models.lock(model):
        share_L3, even_3, least, length_L = of_sentence(net, text)
        seen = look(net, ids, "layers.*.mixer.pattern")
    first_LH = torch.stack([pattern_BHTS[0, :, FROM:, 0].mean(-1) for pattern_BHTS in seen.values()])
    mean_3 = share_L3.mean(0)
    layer, head = divmod(int(first_LH.argmax()), first_LH.shape[1])
    return Answer(
        data={
            "model": model,
            "tokens": net.tokenizer.pieces(ids),
            "kinds": WHERE,
            "mean": mean_3.tolist(),
            "even": even_3.tolist(),
            "least": least,
            "layers": share_L3.tolist(),
            "lengths": length_L.tolist(),
            "strongest": {"layer": layer, "head": head, "share": float(first_LH[layer, head])},
        },
        arrays={"first": first_LH},
        python=(
            "import clearhead\n"
            "from clearhead.claims.scaled.leftover_mass import of_sentence\n\n"
            f"model = clearhead.load({model!r})\n"
            f"share, even, least, lengths = of_sentence(model, {text!r})\n"
            "print(*share.mean(0).tolist())  # first token, punctuation, the rest\n"
            "print(*even.tolist())\n"
            "print(least)\n"
        ),
        printed=(*mean_3.tolist(), *even_3.tolist(), least),
    )
