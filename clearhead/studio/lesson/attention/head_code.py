"""The code of one row of a real head, as a figure offers it for copying."""

from __future__ import annotations

from dataclasses import dataclass

from clearhead.studio.lesson.attention.head import Head, Layer, Switches
from clearhead.studio.lesson.attention.stepper import Step

SEEN = {"mask": "scores", "softmax": "pattern", "mix": "z"}
"""Where the library shows the steps of a pass."""
TRACED = {"scale": "scores_BHTS", "mask": "scores_BHTS", "softmax": "pattern_BHTS", "mix": "z_BHTV"}
RULES = {"own": "mask_from(mixer.config.mask)", "none": "Everything()", "causal": "Causal()"}
IMPORTS = {"own": "bind", "none": "Everything, bind", "causal": "Causal, bind"}


@dataclass(frozen=True)
class Row:
    """Which row is printed: a query's, at one step."""

    source: str
    """What `clearhead.load` takes for the model."""
    text: str
    q: int
    step: Step


def code(row: Row, layer: Layer, head: Head, switches: Switches) -> str:
    """One row of the step that is shown, from the model itself where nothing of its own was changed."""
    last = ("row = row[row > float('-inf')]\n" if row.step == "mask" else "") + "print(*row.tolist())\n"
    if head.untouched and row.step in SEEN:
        tap = f'"{layer.address}.{SEEN[row.step]}"'
        return (
            _start(row)
            + f"seen = clearhead.look(model, text, {tap})\nrow = seen[{tap}][0, {head.index}, {row.q}]\n"
            + last
        )
    if row.step == "score":
        start = _start(row, "from clearhead.ops.attention import score\n")
        return start + _vectors(layer, head) + f"print(*score(q, k)[0, 0, {row.q}].tolist())\n"
    # The scaled scores are those before any mask.
    mask = "none" if row.step == "scale" else switches.mask
    imports = (
        "from clearhead.nn.attention import mask_from\n" if mask == "own" else ""
    ) + f"from clearhead.ops.attention import traced\nfrom clearhead.ops.masks import {IMPORTS[mask]}\n"
    return (
        _start(row, imports)
        + f"mixer = model.{layer.address.replace('.', '[', 1).replace('.', '].', 1)}\n"
        + _vectors(layer, head)
        + f"scale = {switches.beta!r}{' * mixer.scale' if switches.scale else ''}\n"
        + f"rule = bind({RULES[mask]}, q.shape[2], k.shape[2])\n"
        + "steps = traced(q, k, v, rule, scale=scale, softcap=mixer.config.scores.softcap)\n"
        + f"row = steps.{TRACED[row.step]}[0, 0, {row.q}]\n"
        + last
    )


def _start(row: Row, imports: str = "") -> str:
    return f"import clearhead\n{imports}\nmodel = clearhead.load({row.source!r})\ntext = {row.text!r}\n"


def _vectors(layer: Layer, head: Head) -> str:
    """Queries, keys and values of the head."""
    taps = ", ".join(f'"{layer.address}.{name}"' for name in "qkv")
    places = (("q", head.index), ("k", head.kv_index), ("v", head.kv_index))
    lines = [f'{name} = seen["{layer.address}.{name}"][:, {at} : {at + 1}]\n' for name, at in places]
    return f"seen = clearhead.look(model, text, {taps})\n" + "".join(lines)
