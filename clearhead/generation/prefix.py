"""A text that many prompts begin with, and the model's memory of it: they read only what is new in them.

It saves time and changes no answer: a prompt that begins otherwise is read whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.fingerprint import fingerprint
from clearhead.generation.kept import Kept
from clearhead.generation.options import Limits
from clearhead.generation.prefix_memory import Remembered, keep_all, remember
from clearhead.generation.prompts import fit, read_prompt, window
from clearhead.state import State

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

WORTH = 0.5
"""Prompts of a batch that begin with less than this share of what another has in common with the prefix are read
without it, so that one short beginning does not cost the others what they have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prefix:
    """A beginning of texts. Using it leaves it as it is, so any number of prompts, batches and threads may share it."""

    tokens: list[int]
    """Its token ids. The last one is read together with what follows: it may become another token there, and the
    scores behind it are those that a prompt of the prefix alone is continued by."""
    text: str | None = None
    """What they were made of, where that was a text."""
    memory: Remembered
    model: str
    """The fingerprint of the model that read it."""

    def shared(self, tokens: Sequence[int]) -> int:
        """How many tokens at the beginning of a prompt need not be read; at least its last one is left to read.

        0 where it begins otherwise, or where the model's memory can't be cut back to what is the same.
        """
        n = common(self.tokens[: self.memory.n], tokens[:-1])
        return n if n == self.memory.n or n >= self.memory.least else 0

    def state(self, model: Transformer, n: int, n_rows: int = 1, ahead: int = 0) -> State:
        """A new state for a batch in which every row has read the first `n` tokens (see `shared`), with room for
        `ahead` more.

        Raises:
            ClearheadError: it was read by another model.
        """
        self.check(model)
        return self.memory.state(model, self.tokens[:n], n_rows, n + ahead)

    def check(self, model: Transformer) -> None:
        """Refuse a model that did not read this, or whose weights have changed since."""
        if fingerprint(model) != self.model:
            raise ClearheadError(
                "this prefix was read by another model, or the model's weights have changed since; read it anew with "
                "read_prefix"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return self.memory.nbytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, in place of any that was there: whole, or not at all. `load_prefix` reads it.

        The file holds the text, and so is readable by its owner alone.

        Raises:
            ClearheadError: the file can't be written.
        """
        from clearhead.generation.prefix_file import save_prefix

        save_prefix(self, Path(path).expanduser())


def read_prefix(
    model: Transformer,
    text: str | Sequence[int] | Tensor,
    *,
    prefix: Prefix | None = None,
    cut_anywhere: bool = False,
    prefill_chunk: int = 512,
    backend: str = "auto",
) -> Prefix:
    """Let a model read the text that prompts are to begin with.

    Args:
        model: what `clearhead.load` gave, a decoder.
        text: the beginning: a text, encoded as the beginning of a prompt is, or token ids.
        prefix: what was read of the beginning of `text` already: only the rest is read.
        cut_anywhere: layers with a window keep all tokens, as if they had none, so that texts are served too which
            have only a beginning of it in common. Without it, some of the last ones may differ: a quarter of a window.
        prefill_chunk: how many tokens are read at once; it bounds memory.
        backend: the attention kernel.

    Raises:
        ClearheadError: fewer than two tokens, more than the model's window, a model that looks at a source, or that
            can't write; or `prefix` was read by another model.
    """
    if model.config.decoder is None or model.config.encoder is not None:
        raise ClearheadError("a prefix is for models that write on from a prompt: with a decoder and no encoder")
    (tokens,), many = read_prompt(model, text, None)
    if many or len(tokens) < 2:
        raise ClearheadError(f"a prefix is one text of at least two tokens; this is {text!r:.60}")
    fit(tokens, Limits(), context=window(model.config), n_before=0, bos=None)
    n = prefix.shared(tokens) if prefix is not None else 0
    state = _begun(model, prefix, n, len(tokens), cut_anywhere)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for start in range(n, len(tokens) - 1, prefill_chunk):
                piece = tokens[start : min(start + prefill_chunk, len(tokens) - 1)]
                model(torch.tensor([piece], device=model.device), state=state, last=0, backend=backend)
    finally:
        model.train(was_training)
    memory = remember(state, 0, len(tokens) - 1)
    return Prefix(tokens=tokens, text=text if isinstance(text, str) else None, memory=memory, model=fingerprint(model))


def _begun(model: Transformer, prefix: Prefix | None, n: int, capacity: int, cut_anywhere: bool) -> State:
    """What a longer text is read with, when `n` tokens of it are known."""
    if prefix is not None and n:
        prefix.check(model)
        return prefix.memory.state(model, prefix.tokens[:n], 1, capacity, slides=not cut_anywhere)
    state = model.new_state(capacity)
    return keep_all(state) if cut_anywhere else state


def prefix_of(model: Transformer, kept: Kept) -> Prefix:
    """A kept text, such as a conversation so far, as a prefix: the texts that go on from it begin with it.

    Raises:
        ClearheadError: it was continued already; or it stands behind a source, as texts of a model with an encoder do.
    """
    kept.check()
    if kept.state.has_source:
        raise ClearheadError("this text was written behind a source, and a prefix is for texts alone")
    memory = remember(kept.state, 0, kept.n_read)
    return Prefix(tokens=list(kept.tokens), memory=memory, model=fingerprint(model))


@dataclass(frozen=True)
class Start:
    """What a batch begins with instead of an empty state."""

    prefix: Prefix
    n: int
    """How many tokens of every row have been read."""


def starts(prefix: Prefix, prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], Start | None]]:
    """Which prompts go together in one batch, and what each batch begins with: one behind as much of the prefix as its
    rows have in common, and one of all others, without it.
    """
    shared = [prefix.shared(tokens) for tokens in prompts]
    enough = max(1, int(WORTH * max(shared, default=0)))
    behind = [i for i, n in enumerate(shared) if n >= enough]
    n = min((shared[i] for i in behind), default=0)
    found: list[tuple[list[int], Start | None]] = [(behind, Start(prefix, n))] if behind else []
    others = [i for i in range(len(prompts)) if i not in set(behind)]
    return [*found, (others, None)] if others else found


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with in common."""
    low, high = 0, min(len(a), len(b))
    if list(a[:high]) == list(b[:high]):
        return high
    while low + 1 < high:
        # a[:low] is the same in both, a[:high] is not.
        middle = (low + high) // 2
        low, high = (middle, high) if list(a[low:middle]) == list(b[low:middle]) else (low, middle)
    return low


def check_options(prefix: object, *, state: object, has_encoder: bool) -> None:
    """Refuse what can't go with a prefix, and what is none."""
    if not isinstance(prefix, Prefix):
        raise UsageError(f"prefix is {prefix!r:.60}; give what read_prefix or load_prefix returned")
    if state is not None:
        raise UsageError("a kept text is read already, and needs no prefix; leave state or prefix")
    if has_encoder:
        raise UsageError("a prefix is what prompts begin with, and here the prompt is what an encoder reads; leave it")
