"""`attention_report`: one text, one head (asked for, or the one worth showing), and what the model expects next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.config import AttentionConfig, LatentAttentionConfig, TwoTowersConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens.arguments import Arguments, Inputs, arguments
from clearhead.lens.record import PATTERNS, labels
from clearhead.lens.report import AttentionReport, Glance, NextToken, Token
from clearhead.lens.views.labels import visible
from clearhead.taps import Mode, Recorder, address, resolve

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


def attention_report(
    model: Transformer, text: Inputs, *, layer: int | None = None, head: int | None = None, top: int = 8
) -> AttentionReport:
    """Where `model` looks in `text`, from one pass.

    layer and head: that head's pattern, the very numbers of `clearhead.look`. A layer alone: the mean over its heads.
    Neither: of all heads, the one that looks hardest from the last token at a single earlier one. The first token,
    where heads rest, and the one just before, where many always look, do not count.
    text: one text or one row of ids. top: how many next tokens to list.

    Raises:
        ClearheadError: a layer or head that is not there (with those that are), an empty text.
    """
    if head is not None and layer is None:
        raise UsageError("a head is one of a layer's: give --layer (layer=) together with --head (head=)")
    heads = _heads_by_layer(model)
    _check(heads, layer, head)
    call = arguments(model, text)
    if call.tokens_BT is None or call.tokens_BT.shape[0] != 1:
        raise ClearheadError("an attention report is of one text; give a text or one row of token ids")
    if layer is not None:
        pattern_HTS, logits, glances = _one_layer(model, call, layer)
        pattern_TS = pattern_HTS.mean(0) if head is None else pattern_HTS[head]
        why = ""
    else:
        survey = Survey()
        logits = _run(model, call, survey)
        pattern_TS, glances, best = survey.pattern_TS, survey.glances, survey.best
        layer, head = best.layer, best.head
        back = " further back, leaving out the very first" if further_back(call.tokens_BT.shape[1]).start else ""
        why = (
            f"Of {len(glances)} heads, the one that looks hardest from the last token at a single one{back}."
            " Choose with --layer and --head."
        )
    names = [visible(name) for name in labels(model, call.tokens_BT)[0]]
    return AttentionReport(
        tokens=tuple(Token(int(token), name) for token, name in zip(call.tokens_BT[0], names, strict=True)),
        pattern_TS=pattern_TS,
        layer=layer,
        head=head,
        n_heads=heads[layer],
        next_tokens=next_tokens(model, logits, top),
        glances=() if head is not None and why == "" else glances,
        why=why,
    )


def _heads_by_layer(model: Transformer) -> dict[int, int]:
    """{layer: heads} of the layers that have an attention pattern."""
    if isinstance(model.config, TwoTowersConfig):
        raise ClearheadError(
            "an attention report is of one stack, and this model has two towers; clearhead.look(model, inputs, "
            '"text.layers.*.mixer.pattern") gives the patterns of one'
        )
    ops = {layer: block.mixer.op for layer, block in enumerate(model.config.stack.blocks)}
    return {layer: op.n_heads for layer, op in ops.items() if isinstance(op, AttentionConfig | LatentAttentionConfig)}


def _check(heads: dict[int, int], layer: int | None, head: int | None) -> None:
    if not heads:
        raise ClearheadError("this model has no attention layers, so there is no pattern to show")
    if layer is not None and layer not in heads:
        whole = list(heads) == list(range(len(heads)))
        there = f"0 to {len(heads) - 1}" if whole else ", ".join(map(str, heads))
        raise ClearheadError(f"there is no attention in layer {layer}; layers with attention are {there}")
    if layer is not None and head is not None and not 0 <= head < heads[layer]:
        raise ClearheadError(f"there is no head {head} in layer {layer}; its heads are 0 to {heads[layer] - 1}")


def _run(model: Transformer, call: Arguments, taps: Survey | Recorder) -> Tensor:
    with torch.no_grad():
        output: Tensor = call.call(model, taps=taps, last=1)
    return output


def _one_layer(model: Transformer, call: Arguments, layer: int) -> tuple[Tensor, Tensor, tuple[Glance, ...]]:
    (where,) = resolve(model, [PATTERNS.replace("*", str(layer))])
    recorder = Recorder([where])
    logits = _run(model, call, recorder)
    pattern_HTS = recorder.values[where][0].float().cpu()
    return pattern_HTS, logits, tuple(glances_of(layer, pattern_HTS))


def glances_of(layer: int, pattern_HTS: Tensor) -> list[Glance]:
    """Where each head's last token looks most, further back than its neighbour and the first token left out."""
    candidates = further_back(pattern_HTS.shape[-1])
    weights, keys = pattern_HTS[:, -1, candidates].max(dim=1)
    keys = keys + candidates.start
    pairs = zip(weights.tolist(), keys.tolist(), strict=True)
    return [Glance(layer, head, key, weight) for head, (weight, key) in enumerate(pairs)]


def further_back(n: int) -> slice:
    """Of n tokens, those that tell most of what the last one looks for: not the first, nor itself or its neighbour."""
    return slice(1, n - 2) if n > 3 else slice(0, n)


class Survey:
    """Taps that take a glance at every head and keep the pattern of the most striking one alone."""

    def __init__(self) -> None:
        self.glances: tuple[Glance, ...] = ()
        self.best = Glance(-1, -1, -1, -1.0)
        self.pattern_TS = torch.empty(0, 0)

    def mode(self, path: str, name: str) -> Mode:
        return "read" if name == "pattern" and path.startswith("layers.") else "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        if self.mode(path, name) == "read" and address(path, name).endswith("mixer.pattern"):
            glances = glances_of(int(path.split(".")[1]), value[0].detach().float().cpu())
            self.glances += tuple(glances)
            best = max(glances, key=lambda glance: glance.weight)
            if best.weight > self.best.weight:
                self.best, self.pattern_TS = best, value[0, best.head].detach().float().cpu().clone()
        return value


def next_tokens(model: Transformer, logits_BTV: Tensor, top: int) -> tuple[NextToken, ...]:
    """The likeliest next tokens, of those the tokenizer can write; none where a model does not predict them."""
    if model.config.decoder is None or model.config.heads.tokens is None:
        return ()
    logits_V = logits_BTV[0, -1].float().cpu()
    if model.tokenizer is not None:
        logits_V = logits_V[: model.tokenizer.vocab_size]
    shares, ids = logits_V.softmax(-1).topk(min(top, len(logits_V)))
    names = labels(model, ids[None])[0]
    parts = zip(ids.tolist(), names, shares.tolist(), strict=True)
    return tuple(NextToken(token, visible(name), share) for token, name, share in parts)
