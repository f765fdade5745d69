"""Chapter 6: one part of the diagram, opened to its numbers on a reader's text (S41 to S43)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.lens.stream import Addition
from clearhead.studio.context import Studio
from clearhead.studio.lesson.block.reading import TEXT, ModelId, Pass, Text, after, after_name, passed, slot_of
from clearhead.studio.operations import Answer, operation

TOP = 5
"""So many neurons, or likeliest tokens, are named."""


@operation("block.part")
def part(
    studio: Studio,
    *,
    model: ModelId = "clear-gpt",
    text: Text = TEXT,
    layer: Annotated[int, Field(ge=0, le=500)] = 1,
    part: Annotated[str, Field(max_length=12)] = "mixer.add",
    token: int = -1,
) -> Answer:
    """The numbers of one part for one token: what it reads and what it gives, and for an addition the three vectors.

    Arrays v0, v1, v2 are those vectors, as `data["vectors"]` names them.

    Raises:
        UsageError: there is no such part.
    """
    found = passed(studio, model, text)
    slot, layer = slot_of(found, token), min(layer, len(found.plan.layers) - 1)
    with torch.no_grad():
        answer = _opened(found, model, layer, part, slot)
    told = {"model": model, "layer": layer, "box": part, "tokens": found.pieces, "slot": slot}
    return replace(answer, data={**answer.data, **told})


def _opened(found: Pass, model: str, layer: int, part: str, slot: int) -> Answer:
    if part == "embed":
        return _opened_embed(found, slot)
    if part in ("final", "head"):
        return _opened_end(found, part, slot)
    kind, _, place = part.partition(".")
    addition = next((a for a in found.additions if (a.layer, a.kind) == (layer, kind)), None)
    if addition is None or not any(box.id == part for box in found.plan.layers[layer]):
        there = ", ".join(box.id for box in found.plan.layers[layer])
        raise UsageError(f"layer {layer} of {model} has no part {part!r}; it has {there}")
    if place == "":
        return _opened_op(found, addition, slot)
    if place == "add":
        return _opened_addition(found, addition, slot)
    return _opened_norm(found, addition, place, slot)


def _vectors(*named: tuple[str, str, Tensor]) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Of vectors, each with its name and where it is read: lengths, and the vectors themselves as arrays v0, v1, ..."""
    told = [
        {
            "name": name,
            "where": where,
            "length": float(x_D.norm()),
            "mean": float(x_D.mean()),
            "rms": float(x_D.square().mean().sqrt()),
        }
        for name, where, x_D in named
    ]
    return told, {f"v{i}": x_D for i, (*_, x_D) in enumerate(named)}


def _streams(found: Pass, addition: Addition) -> tuple[Tensor, Tensor, Tensor]:
    """Of all tokens: the stream before an addition, the correction, and their sum as float addition gives it."""
    before_TD, out_TD = found.seen[addition.before][0], found.seen[addition.out][0]
    return before_TD, out_TD, before_TD + out_TD


def _read_name(found: Pass, addition: Addition) -> str:
    """The address of the stream that a sub-layer reads: in a parallel block that of its start."""
    parallel = found.model.config.stack.blocks[addition.layer].parallel
    return f"layers.{addition.layer}.resid_pre" if parallel else addition.before


def _opened_addition(found: Pass, addition: Addition, slot: int) -> Answer:
    before_TD, out_TD, sum_TD = _streams(found, addition)
    told, arrays = _vectors(
        ("the stream before", addition.before, before_TD[slot]),
        ("the correction", addition.out, out_TD[slot]),
        ("their sum", f"{addition.before} + {addition.out}", sum_TD[slot]),
    )
    after_TD = after(found, addition)
    normed = addition.norms.after is not None
    off = None if normed else float((sum_TD - after_TD).abs().max())
    parts = _sum_of_parts(found, addition)
    names = [addition.before, addition.out] + ([] if normed else [after_name(addition)])
    lengths = tuple(vector["length"] for vector in told)
    cosine = float(torch.nn.functional.cosine_similarity(before_TD[slot], out_TD[slot], dim=0))
    return Answer(
        data={
            "part": "add",
            "vectors": told,
            "off": off,
            "after": after_name(addition),
            "compared": sum_TD.numel(),
            "sum_of_parts": parts,
            "cosine": cosine,
        },
        arrays=arrays,
        python=(_ADD_NORMED if normed else _ADD).format(
            model=found.source, ids=found.ids, slot=slot, names=_names(names)
        ),
        printed=(*lengths,) if normed else (*lengths, off or 0.0),
    )


def _names(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _sum_of_parts(found: Pass, last: Addition) -> dict[str, Any] | None:
    """How far the stream is from the embedding and all corrections so far, added up outside the model; None where a
    norm stands after an addition, since the stream is no plain sum then.
    """
    so_far = found.additions[: found.additions.index(last) + 1]
    if any(addition.norms.after is not None for addition in so_far):
        return None
    sum_TD = found.seen["embed"][0].clone()
    for addition in so_far:
        sum_TD = sum_TD + found.seen[addition.out][0]
    after_TD = after(found, last)
    # Named for whoever wants to add them up again.
    names = ["embed", *(addition.out for addition in so_far)]
    return {
        "n": len(so_far),
        "names": names,
        "off": float((sum_TD - after_TD).abs().max()),
        "largest": float(after_TD.abs().max()),
    }


_ADD = """\
import clearhead

model = clearhead.load({model})
tokens = {ids}
names = [{names}]
seen = clearhead.look(model, tokens, *names)
before_TD, correction_TD, after_TD = (seen[name][0] for name in names)
for x_TD in (before_TD, correction_TD, before_TD + correction_TD):
    print("length:", float(x_TD[{slot}].norm()))
print("largest difference from the stream after:", float((before_TD + correction_TD - after_TD).abs().max()))
"""
_ADD_NORMED = """\
import clearhead

model = clearhead.load({model})
tokens = {ids}
names = [{names}]
seen = clearhead.look(model, tokens, *names)
before_TD, correction_TD = (seen[name][0] for name in names)
for x_TD in (before_TD, correction_TD, before_TD + correction_TD):
    print("length:", float(x_TD[{slot}].norm()))
"""


def _opened_norm(found: Pass, addition: Addition, place: str, slot: int) -> Answer:
    norm = getattr(addition.norms, place)
    path = f"layers.{addition.layer}.{addition.kind}_norm.{place}"
    if place == "pre":
        reads = where = _read_name(found, addition)
        x_TD, names = found.seen[reads][0], ("the stream", "what is read")
    elif place == "after":
        x_TD, names = _streams(found, addition)[2], ("stream plus correction", "the stream after")
        reads, where = "", f"{addition.before} + {addition.out}"
    else:
        raw_TD = _raw(found, addition)
        if raw_TD is None:
            raise ClearheadError("what this norm reads is offered to nobody, so it can't be shown")
        x_TD, names = raw_TD, ("the raw correction", "the correction that is added")
        raw = _raw_code(addition)
        reads, where = "", f"{raw['matrix']} of {raw['name']}"
    y_TD = norm(x_TD)
    told, arrays = _vectors((names[0], where, x_TD[slot]), (names[1], f"{path} of it", y_TD[slot]))
    code = {
        "pre": _NORM.format(model=found.source, ids=found.ids, slot=slot, path=path, reads=reads),
        "after": _NORM_AFTER.format(
            model=found.source, ids=found.ids, slot=slot, path=path, names=_names([addition.before, addition.out])
        ),
        "out": _NORM_OUT.format(model=found.source, ids=found.ids, slot=slot, **_raw_code(addition), path=path),
    }[place]
    return Answer(
        data={"part": "norm", "vectors": told},
        arrays=arrays,
        python=code,
        printed=tuple(vector["length"] for vector in told),
    )


def _raw(found: Pass, addition: Addition) -> Tensor | None:
    """What a sub-layer gives before a norm of its own: its last matrix times what it offers."""
    if addition.has_heads:
        z_THK = found.seen[f"{addition.op.path}.z"][0].transpose(0, 1)
        raw_TD: Tensor = addition.output_matrix(z_THK.flatten(1))
        return raw_TD
    if addition.has_neurons:
        out_TD: Tensor = addition.output_matrix(found.seen[f"{addition.op.path}.post"][0])
        return out_TD
    return None


def _raw_code(addition: Addition) -> dict[str, str]:
    name = "z" if addition.has_heads else "post"
    shape = ".transpose(0, 1).flatten(1)" if addition.has_heads else ""
    matrix = "o_proj" if addition.has_heads else "down_proj"
    return {"name": f"{addition.op.path}.{name}", "shape": shape, "matrix": f"{addition.op.path}.{matrix}"}


_NORM = """\
import torch

import clearhead

model = clearhead.load({model})
tokens = {ids}
x_TD = clearhead.look(model, tokens, "{reads}")["{reads}"][0]
with torch.no_grad():
    y_TD = model.get_submodule("{path}")(x_TD)
print("lengths:", float(x_TD[{slot}].norm()), float(y_TD[{slot}].norm()))
"""
_NORM_AFTER = """\
import torch

import clearhead

model = clearhead.load({model})
tokens = {ids}
seen = clearhead.look(model, tokens, {names})
x_TD = sum(seen.values())[0]
with torch.no_grad():
    y_TD = model.get_submodule("{path}")(x_TD)
print("lengths:", float(x_TD[{slot}].norm()), float(y_TD[{slot}].norm()))
"""
_NORM_OUT = """\
import torch

import clearhead

model = clearhead.load({model})
tokens = {ids}
inside = clearhead.look(model, tokens, "{name}")["{name}"][0]
with torch.no_grad():
    x_TD = model.get_submodule("{matrix}")(inside{shape})
    y_TD = model.get_submodule("{path}")(x_TD)
print("lengths:", float(x_TD[{slot}].norm()), float(y_TD[{slot}].norm()))
"""


def _opened_op(found: Pass, addition: Addition, slot: int) -> Answer:
    pre = addition.norms.pre
    x_TD = found.seen[_read_name(found, addition)][0]
    read_TD = x_TD if pre is None else pre(x_TD)
    raw_TD = None if addition.norms.out is None else _raw(found, addition)
    out_TD = found.seen[addition.out][0] if raw_TD is None else raw_TD
    read, gives = _read_name(found, addition), addition.out
    if pre is not None:
        read = f"layers.{addition.layer}.{addition.kind}_norm.pre of {read}"
    if raw_TD is not None:
        gives = "{matrix} of {name}".format(**_raw_code(addition))
    told, arrays = _vectors(("what it reads", read, read_TD[slot]), ("the correction", gives, out_TD[slot]))
    data: dict[str, Any] = {"part": addition.kind, "vectors": told, "out": addition.out, "inside": inside_of(addition)}
    inside = inside_of(addition)
    printed: tuple[float, ...] = (float(found.seen[addition.out][0, slot].norm()),)
    data["written"] = printed[0]
    data["written_rms"] = float(found.seen[addition.out][0, slot].square().mean().sqrt())
    if addition.has_heads:
        pattern_HS = found.seen[inside][0, :, slot]
        arrays["pattern"] = pattern_HS
        best = pattern_HS.max(dim=-1)
        data["heads"] = [
            {"most": float(weight), "at": int(at)} for weight, at in zip(best.values, best.indices, strict=True)
        ]
        printed = (*printed, *(float(weight) for weight in best.values))
    elif addition.has_neurons:
        post_F = found.seen[inside][0, slot]
        arrays["neurons"] = post_F
        largest = post_F.abs().topk(min(TOP, len(post_F)))
        data["neurons"] = [{"index": int(i), "value": float(post_F[i])} for i in largest.indices]
        data["before"] = [float(found.seen[f"{addition.op.path}.pre"][0, slot, i]) for i in largest.indices]
        printed = (*printed, *(float(post_F[i]) for i in largest.indices))
    code = _HEADS if addition.has_heads else _NEURONS if addition.has_neurons else _OUT
    return Answer(
        data=data,
        arrays=arrays,
        python=code.format(model=found.source, ids=found.ids, slot=slot, out=addition.out, inside=inside, top=TOP),
        printed=printed,
    )


def inside_of(addition: Addition) -> str:
    """The address of what a part works with: the weights of its heads, or its hidden numbers."""
    return f"{addition.op.path}.{'pattern' if addition.has_heads else 'post'}"


_OUT = """\
import clearhead

model = clearhead.load({model})
seen = clearhead.look(model, {ids}, "{out}")
print("length of the correction:", float(seen["{out}"][0, {slot}].norm()))
"""
_HEADS = """\
import clearhead

model = clearhead.load({model})
seen = clearhead.look(model, {ids}, "{inside}", "{out}")
print("length of the correction:", float(seen["{out}"][0, {slot}].norm()))
for weight in seen["{inside}"][0, :, {slot}].amax(dim=-1):
    print("the most that this head gives to one token:", float(weight))
"""
_NEURONS = """\
import clearhead

model = clearhead.load({model})
seen = clearhead.look(model, {ids}, "{inside}", "{out}")
print("length of the correction:", float(seen["{out}"][0, {slot}].norm()))
post_F = seen["{inside}"][0, {slot}]
for i in post_F.abs().topk({top}).indices:
    print("a neuron:", float(post_F[i]))
"""


def _opened_embed(found: Pass, slot: int) -> Answer:
    x_D = found.seen["embed"][0, slot]
    told, arrays = _vectors(("the stream begins as", "embed", x_D))
    return Answer(
        data={"part": "embed", "vectors": told, "id": found.ids[slot], "piece": found.pieces[slot]},
        arrays=arrays,
        python=_EMBED.format(model=found.source, ids=found.ids, slot=slot),
        printed=(told[0]["length"],),
    )


_EMBED = """\
import clearhead

model = clearhead.load({model})
seen = clearhead.look(model, {ids}, "embed")
print("length:", float(seen["embed"][0, {slot}].norm()))
"""


def _opened_end(found: Pass, part: str, slot: int) -> Answer:
    layers = len(found.plan.layers)
    last_D, final_D = found.seen[f"layers.{layers - 1}.resid_post"][0, slot], found.seen["final"][0, slot]
    told, arrays = _vectors(
        ("the stream after the last block", f"layers.{layers - 1}.resid_post", last_D),
        ("what the head reads", "final", final_D),
    )
    data: dict[str, Any] = {"part": part, "vectors": told}
    printed: tuple[float, ...] = tuple(vector["length"] for vector in told)
    logits = found.seen.output if isinstance(found.seen.output, Tensor) else getattr(found.seen.output, "tokens", None)
    code = _FINAL.format(model=found.source, ids=found.ids, slot=slot, last=layers - 1)
    if part == "head" and logits is not None and logits.ndim == 3:
        logits_V = logits[0, slot].float()
        share_V = logits_V.softmax(dim=-1)
        best = share_V.topk(TOP)
        pieces = found.model.tokenizer.pieces(best.indices.tolist())
        data["next"] = [
            {"piece": piece, "share": float(share), "logit": float(logits_V[i])}
            for piece, share, i in zip(pieces, best.values, best.indices, strict=True)
        ]
        data["causal"] = found.model.config.decoder is not None
        printed = tuple(float(share) for share in best.values)
        tokens = "" if isinstance(found.seen.output, Tensor) else ".tokens"
        code = _HEAD.format(model=found.source, ids=found.ids, slot=slot, top=TOP, tokens=tokens)
    return Answer(data=data, arrays=arrays, python=code, printed=printed)


_FINAL = """\
import clearhead

model = clearhead.load({model})
names = ["layers.{last}.resid_post", "final"]
seen = clearhead.look(model, {ids}, *names)
print("lengths:", *(float(seen[name][0, {slot}].norm()) for name in names))
"""
_HEAD = """\
import torch

import clearhead

model = clearhead.load({model})
with torch.no_grad():
    logits_BTV = model(torch.tensor([{ids}])){tokens}
for share in logits_BTV[0, {slot}].softmax(dim=-1).topk({top}).values:
    print(float(share))
"""
