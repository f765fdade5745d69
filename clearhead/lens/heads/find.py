"""`heads`: what each head of a model does, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs
from clearhead.lens.heads.circuits import composition as compositions
from clearhead.lens.heads.circuits import copying, no_copying
from clearhead.lens.heads.measure import measure
from clearhead.lens.heads.parts import parts
from clearhead.lens.heads.probes import probes
from clearhead.lens.heads.table import Head, Heads

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


def heads(
    model: Transformer,
    inputs: Inputs | None = None,
    *,
    shuffles: int = 8,
    seed: int = 0,
    composition: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> Heads:
    """What each head of `model` does: a role, or "unknown", with its score, a control's, and how far apart they are.

    Two kinds of score, both shares of a head's attention. By place (previous token, first token, two back, the
    neighbouring patch ...): its control shuffles each row of the pattern among the tokens it may see, whose mean and
    spread have closed forms. By token (induction and duplicate token on repeated random tokens, same word in a text,
    subject-verb, pronoun and bracket in sentences with a rival, which counts against): its control is the same cells
    where the tokens stand in shuffled order. `Measure.effect` is score less control, `Measure.sure` the effect in the
    control's standard deviations, and `clearhead.lens.heads.roles` says from where on a head has a role.

    With them: entropy and distance of where it looks, `copying` of models that score tokens, and, where `composition`
    is asked for, which earlier heads it reads by its queries, keys and values (Elhage 2021).

    inputs: what to measure on that any input has, as `clearhead.look` takes it; a text is read in up to four windows of
        128 tokens. None: a text of our own, or shapes and smooth noise for models that read pictures and sounds.
    shuffles: how many times tokens are shuffled for the control; 2 or more. progress: is told the share done, 0 to 1.

    Raises:
        ClearheadError: the model has no attention, or the input is not what it reads.
    """
    if shuffles < 2:
        raise ClearheadError(f"shuffles is {shuffles}; a control has a spread from 2 on")
    stacks = parts(model)
    if isinstance(inputs, str) and not any(part.kind == "tokens" for part in stacks):
        raise ClearheadError("this model reads no text; give what it reads by name: pixels, frames")
    asked = [probes(part, inputs, shuffles, seed) for part in stacks]
    n_rows, done = sum(probe.n_rows for found, _ in asked for probe in found), 0

    def told(rows: int) -> None:
        nonlocal done
        done += rows
        progress(done / n_rows)

    heads, left_out = [], []
    for part, (found, without) in zip(stacks, asked, strict=True):
        name = part.stack.path
        left_out += [f"{name}: {reason}" if name else reason for reason in without]
        measured = measure(part, found, told)
        reason = no_copying(part)
        if reason is not None:
            left_out.append(f"{name}: copying: {reason}" if name else f"copying: {reason}")
        copies = copying(part, seed) if reason is None else {}
        composed = compositions(part) if composition else None
        for layer in part.layers:
            for head in range(part.n_heads(layer)):
                where = (layer, head)
                reads = () if composed is None else composed.strongest(*where)
                heads.append(
                    Head(name, *where, measured.measures[where], measured.looks[where], copies.get(where), reads)
                )
        if any(block.cross is not None for block in part.config.blocks):
            left_out.append("cross-attention: it looks at another text, where there is no previous or same token")
    return Heads(heads, left_out)
