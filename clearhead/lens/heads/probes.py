"""What a stack is given to read so that its heads show themselves: repeated random tokens, sentences, a text, pictures
or sounds, each with what is looked for in it and with the same tokens in shuffled order as a control.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.config import PatchesConfig
from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.heads.aims import PlaceAim, TokenAim, patch_places, text_places
from clearhead.lens.heads.parts import Batch, Part, made
from clearhead.lens.heads.templates import PROSE, TEMPLATES, sentence, writes
from clearhead.nn.patches import patch_grid

HALF, ROWS = 32, 4
"""Random tokens are so many, twice, in so many rows."""
WINDOW, WINDOWS = 128, 4
"""A text is read in windows of so many tokens, and so many of them."""


@dataclass(frozen=True)
class Probe:
    """A batch with what is looked for in it. Rows of group 0 are as they should be, those of the others controls."""

    batch: Batch
    group_B: Tensor
    token_aims: tuple[TokenAim, ...] = ()
    place_aims: tuple[PlaceAim, ...] = ()
    """Only where every row is as long as the batch."""
    shared: str | None = None
    """What it is called that all tokens look at the same one; None where that is not asked."""

    @property
    def n_groups(self) -> int:
        return int(self.group_B.max()) + 1

    @property
    def n_rows(self) -> int:
        return len(self.group_B)


@dataclass(frozen=True)
class Marks:
    """What a tokenizer puts before and after a text."""

    before: list[int]
    after: list[int]

    def around(self, ids: Sequence[int]) -> list[int]:
        return [*self.before, *ids, *self.after]

    def middle(self, n: int) -> range:
        """The places of the text itself in a row of n tokens."""
        return range(len(self.before), n - len(self.after))


def probes(part: Part, given: Inputs | None, shuffles: int, seed: int) -> tuple[list[Probe], list[str]]:
    """The probes that a stack can read, and why it is not asked the rest.

    given: what to measure on that any input has, in place of a text, pictures or sounds of our own.

    Raises:
        ClearheadError: what is given is not what this model reads.
    """
    own = _given(part, given)
    if part.kind != "tokens":
        x = own if own is not None else made(part, ROWS, seed)
        shared = "one patch" if part.kind == "pixels" else None
        only = Probe({part.kind: x}, torch.zeros(len(x), dtype=torch.long), (), tuple(_places(part, x)), shared)
        return [only], ["duplicate token, induction, same word, and what sentences show: they are of tokens"]
    generator = torch.Generator().manual_seed(seed)
    marks, tokenizer = marks_of(part), part.whole.tokenizer
    found, without = [repeated(part, marks, shuffles, generator)], list[str]()
    if own is not None:
        rows = [list(row) for row in own.tolist()] if isinstance(own, Tensor) else own
    elif tokenizer is not None and writes(tokenizer, PROSE):
        rows = windows(part, marks, tokenizer.encode(PROSE, bos=False))
    else:
        size = min(WINDOW, part.context or WINDOW) - len(marks.around([]))
        rows = [marks.around(row) for row in drawn(part, ROWS, size, generator).tolist()]
        without.append("same word: the tokenizer does not write English")
    found.append(of_text(part, marks, rows, shuffles, generator, _source(part, given)))
    for name, templates in TEMPLATES.items():
        about = None if tokenizer is None else sentences(part, marks, name, templates, shuffles, generator)
        if about is None:
            without.append(f"{name}: the tokenizer does not write its sentences")
        else:
            found.append(about)
    return found, without


def marks_of(part: Part) -> Marks:
    """What stands around a text for this stack: the start token of a decoder beside an encoder, else what the
    tokenizer puts there.
    """
    ids, tokenizer = part.model.config.ids, part.whole.tokenizer
    if part.is_output and part.model.encoder is not None:
        start = ids.decoder_start if ids.decoder_start is not None else ids.bos
        return Marks([] if start is None else [start], [])
    if tokenizer is None:
        return Marks([] if ids.bos is None else [ids.bos], [])
    body, whole = tokenizer.encode("a", bos=False), tokenizer.encode("a")
    begin = next(i for i in range(len(whole)) if whole[i : i + len(body)] == body)
    return Marks(whole[:begin], whole[begin + len(body) :])


def drawn(part: Part, rows: int, n: int, generator: torch.Generator) -> Tensor:
    """(rows, n) ordinary ids, no two alike in a row where the vocabulary is large enough."""
    ids, tokenizer = part.model.config.ids, part.whole.tokenizer
    size = part.model.config.vocab_size if tokenizer is None else tokenizer.vocab_size
    special = {ids.bos, ids.pad, ids.mask, ids.decoder_start, *ids.eos} | set(
        () if tokenizer is None else tokenizer.special
    )
    ordinary = torch.tensor([i for i in range(size) if i not in special])
    if len(ordinary) < n:
        return ordinary[torch.randint(len(ordinary), (rows, n), generator=generator)]
    return torch.stack([ordinary[torch.randperm(len(ordinary), generator=generator)[:n]] for _ in range(rows)])


def repeated(part: Part, marks: Marks, shuffles: int, generator: torch.Generator) -> Probe:
    """Random tokens twice over: nothing in them but that they repeat (Olsson 2022, "In-context Learning and Induction
    Heads", appendix on head scores). A duplicate-token head looks back at the same token, an induction head at the
    one that came after it.
    """
    room = HALF if part.context is None else (part.context - len(marks.around([]))) // 2
    half = min(HALF, room)
    if half < 4:
        raise ClearheadError(f"this model reads {part.context} tokens at most, too few to repeat anything in")
    ids_BN = drawn(part, ROWS, half, generator)
    rows = [marks.around([*row, *row]) for row in ids_BN.tolist()]
    first = len(marks.before)
    queries = [(row, first + half + i) for row in range(ROWS) for i in range(half)]
    same = TokenAim.of("duplicate token", [(row, q, q - half, 1.0) for row, q in queries])
    after = TokenAim.of("induction", [(row, q, q - half + 1, 1.0) for row, q in queries if q - half + 1 < first + half])
    return _with_controls(part, marks, rows, (same, after), shuffles, generator)


def windows(part: Part, marks: Marks, ids: Sequence[int]) -> list[list[int]]:
    """A text in up to four pieces of equal length, marks around each; what is left over at its end is not read."""
    longest = min(WINDOW, part.context or WINDOW) - len(marks.around([]))
    n = min(WINDOWS, -(-len(ids) // longest))
    size = min(longest, len(ids) // n)
    return [marks.around(ids[start : start + size]) for start in range(0, n * size, size)]


def of_text(
    part: Part,
    marks: Marks,
    rows: Sequence[Sequence[int]],
    shuffles: int,
    generator: torch.Generator,
    source: Batch,
) -> Probe:
    """Where heads look by place, and whether they look at other occurrences of a word. Rows are of one length."""
    n = len(rows[0])
    words = [_words(part, row, marks.middle(n)) for row in rows]
    cells = [
        (row, query, key, 1.0)
        for row, places in enumerate(words)
        for same in places
        for query in same
        for key in same
        if key < query or (part.both_ways and key > query)
    ]
    aims = (TokenAim.of("same word", cells),) if cells else ()
    probe = _with_controls(part, marks, rows, aims, shuffles, generator)
    places = tuple(text_places(n, part.both_ways, bool(marks.after)))
    beside = {name: value.repeat(probe.n_groups, *[1] * (value.ndim - 1)) for name, value in source.items()}
    return Probe({**probe.batch, **beside}, probe.group_B, probe.token_aims, places)


def _words(part: Part, row: Sequence[int], middle: range) -> list[list[int]]:
    """The places of each word that occurs more than once, whatever its case; pieces of one letter are not words."""
    if part.whole.tokenizer is None:
        return []
    places: dict[str, list[int]] = defaultdict(list)
    for place, piece in zip(middle, part.whole.tokenizer.pieces([row[i] for i in middle]), strict=True):
        word = re.sub(r"[\W_]", "", piece).lower()
        if len(word) > 1:
            places[word].append(place)
    return [same for same in places.values() if len(same) > 1]


def sentences(
    part: Part, marks: Marks, name: str, templates: Sequence[str], shuffles: int, generator: torch.Generator
) -> Probe | None:
    """The sentences of one question; None where the tokenizer can't write enough of them."""
    written = [one for text in templates if (one := sentence(part.whole.tokenizer, text)) is not None]
    most = max((len(marks.around(one.ids)) for one in written), default=0)
    if 2 * len(written) < len(templates) or (part.context is not None and most > part.context):
        return None
    first, cells = len(marks.before), []
    for row, one in enumerate(written):
        cells += [(row, first + one.query, first + key, 1.0) for key in one.target]
        cells += [(row, first + one.query, first + key, -1.0) for key in one.rival]
    rows = [marks.around(one.ids) for one in written]
    return _with_controls(part, marks, rows, (TokenAim.of(name, cells),), shuffles, generator)


def _with_controls(
    part: Part,
    marks: Marks,
    rows: Sequence[Sequence[int]],
    aims: tuple[TokenAim, ...],
    shuffles: int,
    generator: torch.Generator,
) -> Probe:
    """The rows, and `shuffles` times the same rows with their tokens in another order, the marks in place. What a head
    does because of where tokens stand stays; what it does because of which they are goes.
    """
    every = [list(row) for row in rows]
    for _ in range(shuffles if aims else 0):
        for row in rows:
            middle = marks.middle(len(row))
            order = torch.randperm(len(middle), generator=generator).tolist()
            every.append([*row[: middle.start], *(row[middle.start + i] for i in order), *row[middle.stop :]])
    n, n_groups = len(rows), len(every) // len(rows)
    longest = max(map(len, rows))
    batch = {"tokens": torch.tensor([row + [0] * (longest - len(row)) for row in every])}
    if min(map(len, rows)) < longest:
        batch["present"] = torch.tensor([[i < len(row) for i in range(longest)] for row in every])
    batch = {key: value.to(part.model.device) for key, value in batch.items()}
    return Probe(batch, torch.arange(n_groups).repeat_interleave(n), tuple(_repeat(aim, n, n_groups) for aim in aims))


def _repeat(aim: TokenAim, n_rows: int, times: int) -> TokenAim:
    """The same cells in every group."""
    shift_GN = torch.arange(times)[:, None] * n_rows + aim.row_N
    query_N, key_N, weight_N = (x.repeat(times) for x in (aim.query_N, aim.key_N, aim.weight_N))
    return TokenAim(aim.name, shift_GN.flatten(), query_N, key_N, weight_N, aim.n_queries)


def _places(part: Part, x: Tensor) -> Iterator[PlaceAim]:
    """Places in pictures and in sounds."""
    front = part.config.embed.front
    if isinstance(front, PatchesConfig):
        yield from patch_places(*patch_grid(front, *x.shape[-2:]), front.n_prefix)
    else:
        from clearhead.forward import Inputs as StackInputs

        yield from text_places(part.stack.embed.n_slots(StackInputs(frames_BMF=x)), part.both_ways, end=False)


def _given(part: Part, given: Inputs | None) -> Any:
    """What the caller gave for this stack to read: rows of ids, or a tensor; None where it gave nothing for it."""
    if given is None:
        return None
    if isinstance(given, str) and part.kind == "tokens":
        if part.whole.tokenizer is None:
            raise ClearheadError("this model was loaded without a tokenizer; give token ids instead of text")
        ids = part.whole.tokenizer.encode(given, bos=False)
        if len(ids) < 4:
            raise ClearheadError(f"the text is {len(ids)} tokens long; give at least 4, and better a few hundred")
        return windows(part, marks_of(part), ids)
    if isinstance(given, str):
        return None
    call = arguments(part.whole, given)
    if {"present", "source_present"} & set(call.others):
        raise ClearheadError("heads are told apart in rows without padding: give rows of one length, and no present=")
    if part.kind != "tokens":
        return call.others.get(part.kind)
    return call.tokens_BT if part.is_output else call.others.get("source")


def _source(part: Part, given: Inputs | None) -> Batch:
    """What the caller gave a decoder to look at beside its own tokens."""
    if given is None or isinstance(given, str) or part.model.encoder is None or not part.is_output:
        return {}
    call = arguments(part.whole, given)
    names = () if call.tokens_BT is None else ("source", "pixels", "frames")
    return {name: call.others[name] for name in names if name in call.others}
