"""How much of a loss's gradient reaches each step before it (Bengio 1994)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer
from clearhead.taps import Recorder, catalogue, resolve


def gradient_norms(
    model: Transformer,
    tokens_BT: Int[Tensor, "B T"],
    *,
    at: int = -2,
    site: str = "layers.0.mixer.hidden",
    **inputs: Any,
) -> Float[Tensor, "t"]:
    """|dL/dh_t| at every step t up to position `at`, the mean over texts, where L is the loss there: of guessing the
    token that follows.

    With a recurrent layer's hidden vectors it is the whole derivative, through all later steps. `site`: an address of
    shape "B T ...". `inputs`: what else the model takes, such as source=.

    Raises:
        ClearheadError: there is no such position or no token follows it, or the model has no such address
            or several.
    """
    n_tokens = tokens_BT.shape[1]
    place = at + n_tokens if at < 0 else at
    if not 0 <= place < n_tokens - 1:
        raise ClearheadError(f"at is {at}; of {n_tokens} tokens it must be one that another follows, counted from 0")
    at = place
    shapes = catalogue(model)
    found = [address for address in resolve(model, [site]) if shapes[address].startswith("B T")]
    if len(found) != 1:
        raise ClearheadError(f"site is {site!r}, which names {len(found)} values of shape B T ...; name one")
    address = found[0]
    recorder = Recorder([address], keep_graph=True)
    with torch.enable_grad():
        logits_BV = model(tokens_BT, taps=recorder, **inputs)[:, at]
        loss = F.cross_entropy(logits_BV, tokens_BT[:, at + 1], reduction="sum")
        (gradient,) = torch.autograd.grad(loss, [recorder.values[address]])
    norms_BT: Tensor = gradient[:, : at + 1].flatten(2).norm(dim=-1)
    return norms_BT.mean(dim=0)
