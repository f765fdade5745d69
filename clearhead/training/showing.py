"""What a model does with data that was held out, for people to look at while it trains: a sample, and where it looks.

Nothing is drawn at random: texts are continued by the likeliest token each time.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from clearhead.errors import ClearheadError
from clearhead.files import write_whole
from clearhead.generation import generate
from clearhead.lens import attention_report, look
from clearhead.lens.views import png, svg
from clearhead.lens.views.thumbnail import thumbnail
from clearhead.ops.losses import IGNORE
from clearhead.taps import catalogue
from clearhead.training import checkpoint

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.model.transformer import Transformer
    from clearhead.training.data.batches import Batch, Batches
    from clearhead.training.objectives import Objective

SAMPLES = "samples"
"""The folder in that of a run."""
READ, WRITTEN = 48, 64
"""So many tokens of a text are given, and so many written."""
DRAWN = 24
"""So many tokens an attention map has, that labels can be read."""
PIXELS = 320
"""About how wide a map without labels is drawn."""


@dataclass(frozen=True)
class Shown:
    """A sample as text, and a map of attention, where the model has one."""

    text: str
    png: bytes = b""
    svg: bytes = b""

    def save(self, folder: Path, step: int) -> None:
        """As files named by the step, in the run's folder for samples."""
        inside = folder / SAMPLES
        for ending, content in (("txt", self.text.encode() + b"\n"), ("svg", self.svg), ("png", self.png)):
            path = inside / f"step-{step:06d}.{ending}"
            # A drawing is kept as SVG, which can be read at any size.
            if content and not (ending == "png" and self.svg):
                try:
                    inside.mkdir(parents=True, exist_ok=True)
                    write_whole(path, content)
                except OSError as problem:
                    raise ClearheadError(f"{path} can't be written: {problem.strerror or problem}") from problem


def show(model: Transformer, objective: Objective, batches: Batches, name: str) -> Shown | None:
    """What `model` does with the first of what was held out; None where nothing was. `name` is the objective's."""
    batch = next(iter(batches.held_out()), None)
    if batch is None:
        return None
    random, training = checkpoint.random_state(), model.training
    model.eval()
    try:
        with torch.no_grad():
            text = SAYS[name](model, objective, batch)
            return Shown(text, *_map(model, batch))
    finally:
        model.train(training)
        checkpoint.set_random_state(random)


# ---- samples


def _continued(model: Transformer, objective: Objective, batch: Batch) -> str:
    ids = _first_document(batch)
    read = ids[: max(1, min(READ, len(ids) // 2))]
    written = generate(model, read, max_new_tokens=WRITTEN, temperature=0)
    rest = ids[len(read) : len(read) + WRITTEN]
    return _lines(given=_text(model, read), written=written.text, there=_text(model, rest))


def _filled(model: Transformer, objective: Objective, batch: Batch) -> str:
    tokens_T = _row(batch, "tokens_BT", "present")
    targets_T = batch.targets[0, : len(tokens_T)]
    hidden_T = targets_T != IGNORE
    out = model(**_first(batch))
    logits_BTV = out if isinstance(out, torch.Tensor) else out.tokens
    told_T = torch.where(hidden_T, logits_BTV[0, : len(tokens_T)].argmax(-1).cpu(), tokens_T)
    true_T = torch.where(hidden_T, targets_T, tokens_T)
    right = int((told_T == true_T)[hidden_T].sum())
    return _lines(
        given=_text(model, tokens_T.tolist()),
        told=_text(model, told_T.tolist()),
        there=_text(model, true_T.tolist()),
        right=f"{right} of {int(hidden_T.sum())} hidden tokens",
    )


def _answered(model: Transformer, objective: Objective, batch: Batch) -> str:
    answer = batch.targets[0]
    there = _text(model, answer[answer != IGNORE].tolist())
    if "source" in batch.inputs:
        source = _row(batch, "source", "source_present").tolist()
        written = generate(model, source, max_new_tokens=WRITTEN, temperature=0)
        return _lines(given=_text(model, source), written=written.text, there=there)
    heard = generate(model, batch.inputs["frames"][0], max_new_tokens=WRITTEN, temperature=0)
    written = heard[0] if isinstance(heard, list) else heard
    return _lines(written=written.text, there=there)


def _labelled(model: Transformer, objective: Objective, batch: Batch) -> str:
    reading = objective.read(model, batch)  # type: ignore[attr-defined]
    told = reading.rows_ND.argmax(-1).tolist()
    there = reading.targets_N.tolist()
    right = sum(a == b for a, b in zip(told, there, strict=True))
    few = slice(0, 16)
    return _lines(
        told=" ".join(map(str, told[few])), there=" ".join(map(str, there[few])), right=f"{right} of {len(told)}"
    )


def _valued(model: Transformer, objective: Objective, batch: Batch) -> str:
    loss, n = objective.loss(model, batch)
    return _lines(error=f"{float(loss) / max(1.0, float(n)):.4f}, the mean square of {int(n)} numbers")


SAYS: dict[str, Callable[[Transformer, Objective, Batch], str]] = {
    "next_token": _continued,
    "masked_tokens": _filled,
    "source_to_target": _answered,
    "labels": _labelled,
    "regress": _valued,
}
"""By the objective's name."""


def _lines(**parts: str) -> str:
    """Each part under its name, where it has several lines."""
    said = {name: part.strip("\n").splitlines() for name, part in parts.items()}
    width = max(map(len, said)) + 2
    if all(len(part) < 2 for part in said.values()):
        return "\n".join(f"{name:{width}}{''.join(part)}" for name, part in said.items())
    return "\n".join("\n".join([f"{name}:", *(f"    {line}" for line in part)]) for name, part in said.items())


def _text(model: Transformer, ids: list[int]) -> str:
    tokenizer = model.tokenizer
    return " ".join(map(str, ids)) if tokenizer is None else str(tokenizer.decode(ids))


def _first(batch: Batch) -> dict[str, Tensor]:
    return {name: x[:1] for name, x in batch.inputs.items()}


def _row(batch: Batch, name: str, present: str) -> Tensor:
    """The first row, without its padding."""
    row_T = batch.inputs[name][0]
    return row_T[batch.inputs[present][0].bool()] if present in batch.inputs else row_T


def _first_document(batch: Batch) -> list[int]:
    """The first text of the first row."""
    row_T = _row(batch, "tokens_BT", "present")
    if "documents" in batch.inputs:
        documents_T = batch.inputs["documents"][0, : len(row_T)]
        row_T = row_T[: int((documents_T == documents_T[0]).long().cumprod(0).sum())]
    found: list[int] = row_T.tolist()
    return found


# ---- maps


def _map(model: Transformer, batch: Batch) -> tuple[bytes, bytes]:
    """As PNG and as SVG; where what is looked at are no tokens of the same text, without labels and as PNG alone."""
    known = catalogue(model)
    crossed = [name for name in known if name.endswith("cross.pattern")]
    own = [name for name in known if name.startswith("layers.") and name.endswith("mixer.pattern")]
    if own and not crossed and "tokens_BT" in batch.inputs:
        ids = _first_document(batch)[:DRAWN]
        drawn = attention_report(model, ids).sheet()
        return png.draw(drawn), svg.draw(drawn).encode()
    if not (crossed or own):
        return b"", b""
    address = (crossed or own)[-1]
    inputs: dict[str, Any] = _first(batch)
    if "tokens_BT" in inputs:
        inputs["tokens"] = inputs.pop("tokens_BT")
    pattern_TS = look(model, inputs, address).pattern(address).mean(0)
    # Weights of a mean over many keys are small; what counts in a picture is which are larger.
    return _enlarged(thumbnail(pattern_TS / pattern_TS.max().clamp(min=1e-9))), b""


def _enlarged(picture: bytes) -> bytes:
    image = Image.open(io.BytesIO(picture))
    by = max(1, PIXELS // max(image.size))
    out = io.BytesIO()
    image.resize((image.width * by, image.height * by), Image.Resampling.NEAREST).save(out, "PNG")
    return out.getvalue()
