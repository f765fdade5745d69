"""One pass over what a run reads, changed or not: the finished stream is kept, and logits are made where somebody asks.

The logits of a whole text are never held: 1,000 tokens of a vocabulary of 262,144 are a gigabyte.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.lens.edit import edit
from clearhead.lens.targets import check_vocabulary, token_ids, token_names
from clearhead.lens.views.labels import visible
from clearhead.ops import sampling
from clearhead.studio.explore.ablations import Ablation, code_of, edits_of
from clearhead.studio.kept import KeptResults, Key

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio
    from clearhead.studio.explore.runs import Run

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work that may be closed where it yields None, and returns what it found."""

AT_ONCE = 2**24
"""Logits that are held at a time: 64 MB."""
KEPT = 12
"""Finished streams that are kept, of the latest passes."""


@dataclass(frozen=True)
class Stream:
    """What a pass left: the stream (1, T, D), or of a model of labels its scores (C,); and scores made of it before."""

    values: Tensor
    rows: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A text that was read to the end: a stream, and the vocabulary head that reads it."""

    model: Transformer
    ids: tuple[int, ...]
    """What was read, blanks among them."""
    stream: Stream

    @property
    def stream_BTD(self) -> Tensor:
        return self.stream.values

    def logits(self, position: int) -> Tensor:
        """The scores (V,) of the vocabulary at one place, float32."""
        rows = self.stream.rows
        found = rows.get(position)
        if found is None:
            found = read_out(self.model, self.stream_BTD[:, [position]])[0, 0]
            if len(rows) >= 8:
                rows.clear()
            rows[position] = found
        return found

    def chunks(self) -> Iterator[tuple[range, Tensor]]:
        """The scores of all places, some at a time: which places, and (places, V)."""
        n, size = self.stream_BTD.shape[1], self.model.unembedding.shape[0]
        step = max(1, AT_ONCE // size)
        for start in range(0, n, step):
            places = range(start, min(start + step, n))
            yield places, read_out(self.model, self.stream_BTD[:, start : places.stop])[0]

    def losses(self) -> Tensor:
        """Of each token but the first, (T - 1,), the natural logarithm of 1 over its probability given those before."""
        return to_end(self.losing())

    def losing(self) -> Steps[Tensor]:
        """The same, some places at a time."""
        next_T = torch.tensor(self.ids[1:], dtype=torch.long)
        found = []
        for places, logits_TV in self.chunks():
            if places.start < len(next_T):
                here = next_T[places.start : places.stop]
                found.append(-sampling.log_probs(logits_TV[: len(here)], here))
            yield None
        return torch.cat(found) if found else torch.zeros(0)


@dataclass(frozen=True)
class Labelled(Finished):
    """What a model of labels gave: its scores (C,), whatever the place."""

    def logits(self, position: int) -> Tensor:
        return self.stream.values

    def losing(self) -> Steps[Tensor]:
        yield None
        return torch.zeros(0)


def to_end(steps: Steps[T]) -> T:
    """What work in steps finds, without a stop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


@torch.no_grad()
def read_out(model: Transformer, stream_BTD: Tensor) -> Tensor:
    """The logits (B, T, V) of a finished stream."""
    assert model.head is not None and model.embed.tokens is not None
    logits_BTV: Tensor = model.head(stream_BTD, model.embed.tokens.weight)
    return logits_BTV.float()


# ---- what a figure asks about


@dataclass(frozen=True)
class Opened:
    """A run, its model, and what the model takes."""

    studio: Studio
    run: Run
    model: Transformer
    inputs: Mapping[str, Any]
    hidden: tuple[int, ...] = ()
    """Places of the text that stand behind a mask."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens that the stack with the head reads."""
        tokens_BT: Tensor | None = self.inputs.get("tokens")
        return () if tokens_BT is None else tuple(tokens_BT[0].tolist())

    @property
    def labels(self) -> bool:
        """Whether the model gives labels and no tokens."""
        return self.model.head is None

    def names(self, ids: Sequence[int]) -> list[str]:
        """Tokens as they are drawn; or labels."""
        if not self.labels:
            return named(self.model, ids)
        known = {} if self.model.origin is None else dict(self.model.origin.raw_config.get("id2label") or {})
        return [visible(str(known.get(str(i), known.get(i, f"label {i}")))) for i in ids]

    @property
    def foretells(self) -> bool:
        """Whether what stands at a place is the next token, or, of a model that sees both ways, that token itself."""
        return self.model.config.decoder is not None

    def place(self, position: int | None) -> int:
        """A place of the text, from its end where negative; None is where a person would look first: the last token,
        or the first blank of a model that fills blanks. Raises UsageError where there is none.
        """
        n = len(self.ids)
        if self.labels:
            return 0
        if position is None:
            blanks = [] if self.foretells else [i for i, token in enumerate(self.ids) if token == _mask(self.model)]
            return n - 1 if self.foretells else blanks[0] if blanks else n // 2
        if not -n <= position < n:
            raise UsageError(f"there is no token {position}; this text has 0 to {n - 1}")
        return position % n

    def actual(self, position: int) -> int | None:
        """What the text itself has where the prediction at a place is of; None after its end."""
        if not self.foretells:
            token = self.run.tokens[position].id
            return None if token == _mask(self.model) else token
        return self.ids[position + 1] if position + 1 < len(self.ids) else None


def opened(studio: Studio, run_id: str, hidden: Sequence[int] = (), *, what: str = "", labels: bool = False) -> Opened:
    """A run that is still kept, with some tokens behind a mask.

    what: what needs a vocabulary, where that is so. labels: it can do with labels as well.

    Raises:
        UsageError: no such run, no such token, or a model that knows no mask.
        ClearheadError: the model has no vocabulary head, and one is needed.
    """
    run = studio.runs.get(run_id)
    model = studio.models.get(run.model)
    if what and not (labels and getattr(model, "head", 0) is None and len(model.labels) == 1):
        check_vocabulary(model, what)
    inputs = dict(run.inputs(model))
    if hidden:
        tokens_BT: Tensor = inputs["tokens"].clone()
        n = tokens_BT.shape[1]
        if not all(0 <= slot < n for slot in hidden):
            raise UsageError(f"there is no token {max(hidden)}; this text has 0 to {n - 1}")
        tokens_BT[0, list(hidden)] = mask_of(model)
        inputs["tokens"] = tokens_BT
    return Opened(studio, run, model, inputs, tuple(sorted(set(hidden))))


def mask_of(model: Transformer) -> int:
    """The token that hides another. Raises UsageError where a model knows none."""
    found = _mask(model)
    if found is None:
        raise UsageError("this model knows no mask, so it fills no blanks; it foretells the next token instead")
    return found


def _mask(model: Transformer) -> int | None:
    names = {} if model.tokenizer is None else model.tokenizer.vocabulary.names
    found = model.config.ids.mask
    if found is None and "mask_token" in names:
        found = model.tokenizer.token_to_id(names["mask_token"])
    return None if found is None or model.config.decoder is not None else int(found)


_streams: KeptResults[Stream] = KeptResults(KEPT)


def _key(studio: Studio, run: Run, hidden: Sequence[int], ablate: Sequence[Ablation]) -> Key:
    return _streams.key(studio.models, run.model, run.id, tuple(sorted(set(hidden))), (*run.ablate, *ablate))


def is_finished(studio: Studio, run_id: str, hidden: Sequence[int] = (), ablate: Sequence[Ablation] = ()) -> bool:
    """Whether `finished` would find a pass that was made, so that a question about it is short."""
    if not studio.runs.has(run_id):
        return False
    run = studio.runs.get(run_id)
    return (not hidden and not ablate and "final" in run.values) or _key(studio, run, hidden, ablate) in _streams


def finished(asked: Opened, ablate: Sequence[Ablation] = (), *, keep: bool = True) -> Finished:
    """The pass of a run, with what the run takes out and with `ablate` besides; the latest are kept."""
    if not asked.hidden and not ablate and not asked.labels and (final := asked.run.values.get("final")) is not None:
        return Finished(asked.model, asked.ids, Stream(final))
    key = _key(asked.studio, asked.run, asked.hidden, ablate)
    stream = _streams.get(key)
    if stream is None:
        with asked.studio.models.lock(asked.run.model):
            # Another may have made it while this one waited.
            stream = _streams.get(key) or _pass(asked, edits_of(asked.model, (*asked.run.ablate, *ablate)))
        if keep:
            _streams.put(key, stream)
    return Labelled(asked.model, (), stream) if asked.labels else Finished(asked.model, asked.ids, stream)


def _pass(asked: Opened, edits: Sequence[Mapping[str, Any]]) -> Stream:
    if asked.labels:
        return Stream(_scores(edit(asked.model, asked.inputs, edits)))
    return Stream(edit(asked.model, {**asked.inputs, "read": False}, edits))


def _scores(output: Any) -> Tensor:
    """The scores (C,) of the labels. Raises UsageError where there are others for each token."""
    if not isinstance(output, Tensor) or output.dim() != 2:
        raise UsageError("this model gives labels to tokens one by one, and these views are of one answer a text")
    return output[0].float()


def token_named(asked: Opened, token: int | str | None) -> int | None:
    """One token, by its id or as text, as `clearhead.lens` takes targets.

    Raises:
        ClearheadError: a text of several tokens, or an id that the model has not.
    """
    if token is None or token == "":
        return None
    if not asked.labels:
        return int(token_ids(asked.model, token)[0])
    n = len(finished(asked).logits(0))
    if not isinstance(token, int) or token >= n:
        raise UsageError(f"a label is named by its number, 0 to {n - 1}")
    return token


def named(model: Transformer, ids: Sequence[int]) -> list[str]:
    """Tokens as they are drawn."""
    return token_names(model, torch.tensor(list(ids), dtype=torch.long))


def check_size(asked: Opened, most: int, what: str) -> None:
    """Refuse a text of which `what` would take too long."""
    n = len(asked.ids)
    if n > most:
        raise UsageError(
            f"{what} takes at most {most:,} tokens of this model at once, and the text is {n:,}; shorten it"
        )


def most_tokens(model: Transformer, numbers: int) -> int:
    """How many tokens have at most so many logits together."""
    return max(8, numbers // model.unembedding.shape[0])


# ---- the same in Python


def code(asked: Opened, imports: Sequence[str], *lines: str, ablate: Sequence[Ablation] = ()) -> str:
    """A program: imports, the model, what it reads (as `inputs`), what is taken out (as `edits`), and then `lines`."""
    head, _, body = asked.run.opening(asked.model).partition("\n\n")
    first = body.rstrip("\n").splitlines()
    if asked.hidden:
        mask = asked.model.tokenizer.vocabulary.names.get("mask_token")
        spelled = f"model.tokenizer.token_to_id({mask!r})" if mask else str(mask_of(asked.model))
        plain = not first[-1].startswith("inputs = {")
        if plain:
            first[-1] = f"inputs = model.tokenizer.encode({first[-1].removeprefix('inputs = ')})"
        row = "inputs" if plain else 'inputs["tokens"]'
        first += [f"{row}[{slot}] = {spelled}" for slot in asked.hidden]
    if ablate:
        first.append(f"edits = {code_of(asked.model, ablate)}")
    wanted = [*head.splitlines(), *imports, *lens_imports(ablate)]
    outside = sorted({line for line in wanted if "clearhead" not in line})
    groups = [
        *([outside] if outside else []),
        _merged([line for line in wanted if "clearhead" in line]),
        [*first, *lines],
    ]
    return "\n\n".join("\n".join(group) for group in groups) + "\n"


def _merged(imports: Sequence[str]) -> list[str]:
    """Import lines, one a module."""
    names: dict[str, set[str]] = {}
    for line in imports:
        if line.startswith("from "):
            module, _, what = line.removeprefix("from ").partition(" import ")
            names.setdefault(module, set()).update(name.strip() for name in what.split(","))
    plain = sorted({line for line in imports if line.startswith("import ")})
    return [*plain, *(f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names))]


def lens_imports(ablate: Sequence[Ablation]) -> list[str]:
    """What the `edits` of these need."""
    names = set()
    for one in ablate:
        names |= {"at"} if one.heads or one.keys or one.queries else set()
        names |= {"forbid"} if one.keys or one.queries else {one.mode}
    return [f"from clearhead.lens import {', '.join(sorted(names))}"] if names else []


def refuse_changed(asked: Opened, what: str) -> None:
    """Some lenses read a model as it is."""
    if asked.run.ablate:
        raise ClearheadError(f"{what} is of the model as it is; switch everything on again to see it")
