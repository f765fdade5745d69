"""The same steps in one head of a real model, on the reader's own sentence."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from clearhead.config import AttentionConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import look
from clearhead.lens.seen import Seen
from clearhead.nn.attention import mask_from
from clearhead.nn.block import Block
from clearhead.ops.attention import mask_scores, score, traced
from clearhead.ops.masks import Causal, Everything, Mask, bind
from clearhead.studio.lesson.attention.stepper import Sharpness, Step
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

TEXT = "The cat sat on the mat because it was tired"
MOST = 64
TAPS = ("q", "k", "v", "scores", "pattern", "z")
MaskName = Literal["own", "none", "causal"]
_kept: OrderedDict[tuple[str, str, int], Seen] = OrderedDict()
_keeping = Lock()
KEPT = 12


def seen_at(studio: Studio, name: str, text: str, layer: int) -> tuple[Transformer, Seen]:
    """A model, and all that one of its attentions computed on a text; the last few are kept, since a reader who moves
    from cell to cell asks for the same one.

    Raises:
        UsageError: the model reads no text, the text is empty or too long, or the layer has no attention with heads.
    """
    model = studio.models.get(name)
    config = model.config
    both = getattr(config, "encoder", None) is not None and getattr(config, "decoder", None) is not None
    if model.tokenizer is None or both or not hasattr(config, "stack"):
        raise UsageError(f"{name} does not read one text; choose clear-gpt, clear-2l or clear-bert")
    stack = config.stack
    if layer >= len(stack.blocks):
        raise UsageError(f"{name} has the layers 0 to {len(stack.blocks) - 1}, and no layer {layer}")
    if not isinstance(stack.blocks[layer].mixer.op, AttentionConfig):
        raise UsageError(f"layer {layer} of {name} mixes without queries and keys of heads; choose another layer")
    with _keeping:
        known = _kept.get((name, text, layer))
        if known is not None:
            _kept.move_to_end((name, text, layer))
            return model, known
    ids = model.tokenizer.encode(text)
    if not ids or not text.strip():
        raise UsageError("there is no text; write a sentence")
    if len(ids) > MOST:
        raise UsageError(
            f"{name} makes {len(ids)} tokens of this text, and the figure shows {MOST}; write a shorter one, or open "
            "it under Explore"
        )
    with studio.models.lock(name):
        seen = look(model, ids, *(f"layers.{layer}.mixer.{tap}" for tap in TAPS))
    with _keeping:
        _kept[name, text, layer] = seen
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return model, seen


@operation("attention.model")
def of_model(
    studio: Studio,
    *,
    model: Annotated[str, Field(max_length=200)] = "clear-gpt",
    text: Annotated[str, Field(max_length=1000)] = TEXT,
    layer: Annotated[int, Field(ge=0, le=255)] = 1,
    head: Annotated[int, Field(ge=0, le=255)] = 1,
    q: Annotated[int, Field(ge=-1, lt=MOST)] = -1,
    k: Annotated[int, Field(ge=-1, lt=MOST)] = -1,
    step: Step = "softmax",
    beta: Sharpness = 1.0,
    scale: bool = True,
    mask: MaskName = "own",
) -> Answer:
    """All cells of one head at every step, and the working of one of them.

    q, k: the query and the key that are worked out; -1: the last token, and the key that it weighs most.
    mask: the model's own, or another rule in its place. With its own, sharpness 1 and the divisor on, the numbers are
        those that the model computed on the way.
    """
    net, seen = seen_at(studio, model, text, layer)
    assert net.tokenizer is not None
    block = net.layers[layer]
    assert isinstance(block, Block)
    mixer: Any = block.mixer
    config: AttentionConfig = mixer.config
    if head >= config.n_heads:
        raise UsageError(f"layer {layer} of {model} has the heads 0 to {config.n_heads - 1}, and no head {head}")
    at = f"layers.{layer}.mixer"
    shared = config.n_heads // config.n_kv_heads
    q_TK, k_SK, v_SV = (
        seen[f"{at}.{name}"][0, which] for name, which in (("q", head), ("k", head // shared), ("v", head // shared))
    )
    n = len(q_TK)
    own, rule = mask_from(config.mask), mask_from(config.mask)
    if mask != "own":
        rule = Causal() if mask == "causal" else Everything()
    factor = beta * (mixer.scale if scale else 1.0)
    raw_TS, scaled_TS, scores_TS, pattern_TS, z_TV = steps(q_TK, k_SK, v_SV, rule, factor, config)
    untouched = rule == own and beta == 1.0 and scale
    if untouched:
        scores_TS, pattern_TS, z_TV = (seen[f"{at}.{name}"][0, head] for name in ("scores", "pattern", "z"))
    q = n - 1 if q < 0 or q >= n else q
    # Where nothing is chosen, the likeliest thing to look at: the largest weight, the resting place at the start aside.
    if k < 0 or k >= n:
        k = int(pattern_TS[q, 1:].argmax()) + 1 if n > 1 else 0
    allowed_S = scores_TS[q] > float("-inf")
    row = {
        "score": raw_TS[q],
        "scale": scaled_TS[q],
        "mask": scores_TS[q][allowed_S],
        "softmax": pattern_TS[q],
        "mix": z_TV[q],
    }[step]
    return Answer(
        data={
            "model": model,
            "tokens": net.tokenizer.pieces(net.tokenizer.encode(text)),
            "layer": layer,
            "head": head,
            "layers": len(net.config.stack.blocks),
            "heads": config.n_heads,
            "kv_head": head // shared,
            "kv_heads": config.n_kv_heads,
            "d_head": config.d_head,
            "q": q,
            "k": k,
            "step": step,
            "beta": beta,
            "scale": scale,
            "mask": mask,
            "causal": config.mask.kind == "causal",
            "window": config.mask.window,
            "rotary": config.positions is not None,
            "untouched": untouched,
            "divisor": 1 / mixer.scale if scale else 1.0,
            "seen": int(allowed_S.sum()),
            "hidden": not bool(allowed_S[k]),
            "score": float(raw_TS[q, k]),
            "scaled": float(scaled_TS[q, k]),
            "weight": float(pattern_TS[q, k]),
            "largest": {"token": int(pattern_TS[q].argmax()), "weight": float(pattern_TS[q].max())},
            "address": at,
        },
        arrays={
            "query": q_TK[q],
            "key": k_SK[k],
            "value": v_SV[k],
            "products": q_TK[q] * k_SK[k],
            "score": raw_TS,
            "scale": scaled_TS,
            "mask": scores_TS,
            "softmax": pattern_TS,
            "z": z_TV[q],
            "lengths": (pattern_TS[q, :, None] * v_SV).norm(dim=-1),
        },
        python=code(model, text, at, head, head // shared, q, step, beta, scale, mask, untouched),
        printed=tuple(row.tolist()),
    )


def steps(
    q_TK: Tensor, k_SK: Tensor, v_SV: Tensor, rule: Mask, factor: float, config: AttentionConfig
) -> tuple[Tensor, ...]:
    """One head's cells at every step: q.k, scaled, masked, normalised, (T, S) each, and the mix, (T, V)."""
    bound, every = (bind(one, len(q_TK), len(k_SK)) for one in (rule, Everything()))
    q_BHTK, k_BHSK, v_BHSV = (x[None, None] for x in (q_TK, k_SK, v_SV))
    raw_BHTS = score(q_BHTK, k_BHSK)
    scaled_BHTS = mask_scores(raw_BHTS, every, scale=factor, softcap=config.scores.softcap)
    seen = traced(q_BHTK, k_BHSK, v_BHSV, bound, scale=factor, softcap=config.scores.softcap)
    return tuple(x[0, 0] for x in (raw_BHTS, scaled_BHTS, seen.scores_BHTS, seen.pattern_BHTS, seen.z_BHTV))


def code(
    model: str,
    text: str,
    at: str,
    head: int,
    kv_head: int,
    q: int,
    step: Step,
    beta: float,
    scale: bool,
    mask: MaskName,
    untouched: bool,
) -> str:
    """One row of the step that is shown, from the model itself where nothing of its own was changed."""
    rest = f"\nmodel = clearhead.load({model!r})\ntext = {text!r}\n"

    def start(more: str) -> str:
        return f"import clearhead\n{more}{rest}"

    tap = {"mask": "scores", "softmax": "pattern", "mix": "z"}.get(step)
    if untouched and tap is not None:
        only = "row = row[row > float('-inf')]\n" if step == "mask" else ""
        return (
            start("")
            + f'seen = clearhead.look(model, text, "{at}.{tap}")\n'
            + f'row = seen["{at}.{tap}"][0, {head}, {q}]\n{only}print(*row.tolist())\n'
        )
    reads = f'seen = clearhead.look(model, text, "{at}.q", "{at}.k", "{at}.v")\n' + "".join(
        f'{name} = seen["{at}.{name}"][:, {which} : {which + 1}]\n'
        for name, which in (("q", head), ("k", kv_head), ("v", kv_head))
    )
    if step == "score":
        return (
            start("from clearhead.ops.attention import score\n") + reads + f"print(*score(q, k)[0, 0, {q}].tolist())\n"
        )
    more = "from clearhead.nn.attention import mask_from\n" if mask == "own" and step != "scale" else ""
    rule = {"own": "mask_from(mixer.config.mask)", "none": "Everything()", "causal": "Causal()"}[mask]
    rule = "Everything()" if step == "scale" else rule
    named = ", ".join([*([rule[:-2]] if rule.endswith("()") else []), "bind"])
    taken = {"scale": "scores_BHTS", "mask": "scores_BHTS", "softmax": "pattern_BHTS", "mix": "z_BHTV"}[step]
    only = "row = row[row > float('-inf')]\n" if step == "mask" else ""
    layer = at.rpartition("layers.")[2].removesuffix(".mixer")
    return (
        start(more + f"from clearhead.ops.attention import traced\nfrom clearhead.ops.masks import {named}\n")
        + f"mixer = model.layers[{layer}].mixer\n"
        + reads
        + f"scale = {beta!r}{' * mixer.scale' if scale else ''}\n"
        + f"rule = bind({rule}, q.shape[2], k.shape[2])\n"
        + "steps = traced(q, k, v, rule, scale=scale, softcap=mixer.config.scores.softcap)\n"
        + f"row = steps.{taken}[0, 0, {q}]\n{only}print(*row.tolist())\n"
    )


OFFERED = ("clear-gpt", "clear-2l", "clear-bert", "gemma3-270m")


@operation("attention.models")
def models(studio: Studio) -> Answer:
    """The models that read one text by attention: those of the command line, and small ones that packages ship."""
    found = []
    for id in dict.fromkeys([*studio.models.named, *OFFERED]):
        if id not in studio.models.sources:
            continue
        try:
            about = studio.models.about(id)
        except ClearheadError:
            continue
        if about["kind"] in ("decoder", "encoder") and about["can"]["attn"] and not _sees(about):
            found.append({"id": id, "decodes": about["kind"] == "decoder"})
    missing = [
        {"id": id, "install": f'pip install "clearhead[{studio.models.missing[id]}]"'}
        for id in OFFERED
        if id in studio.models.missing
    ]
    return Answer(data={"models": found, "missing": missing})


def _sees(about: Mapping[str, Any]) -> bool:
    """Whether a model reads pictures or sounds."""
    return bool(about["can"]["pictures"] or about["can"]["sound"])
