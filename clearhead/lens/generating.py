"""Looking, and changing what is there, while a model writes: with its memory, one token a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.errors import UsageError
from clearhead.generation import Options, Result, generate
from clearhead.lens.aliases import addresses
from clearhead.lens.arguments import Arguments
from clearhead.lens.edit import Edits, edit_functions
from clearhead.lens.places import FIRST, KEYS, SOURCE, Progress, Site, Slots
from clearhead.lens.record import PATTERNS, Keep
from clearhead.lens.seen import Seen
from clearhead.taps import Chain, Editor, Mode, Taps, address

if TYPE_CHECKING:
    from clearhead.generation.prompts import Prompt
    from clearhead.model.transformer import Transformer

NOTHING = {"pattern": 0.0, "scores": float("-inf")}
"""What a query has where a key was not there yet."""


def look_generating(
    model: Transformer,
    prompt: Prompt,
    *wanted: str,
    edits: Edits | None = None,
    positions: Sequence[int] | None = None,
    device: torch.device | str | None = None,
    **options: Unpack[Options],
) -> Seen:
    """Let a model write on from a prompt and return the values at the addresses `wanted` of every step.

    They are put together along the tokens, so they are what one pass over the whole text would give: all but the last
    token drawn, which nothing has read. Where rotary frequencies change with the length, logits are those that it was
    written by. `seen.output` is the `Result`.
    positions: keep these slots alone, counted in the whole text. Everything else is as for `clearhead.look` and
    `clearhead.generate`.

    Raises:
        UsageError: several prompts, a beam search, or a text that goes on from a kept one.
        ClearheadError: as `clearhead.look` and `clearhead.generate`.
    """
    progress = Steps()
    keep = Keep(model, addresses(model, wanted or (PATTERNS,)), progress)
    pieces = Pieces(keep.sites, device)
    result, read = _run(model, prompt, progress, edits, options, pieces)
    # What there is to choose from is known now.
    whole = Keep(model, list(keep.sites), progress, positions)
    values = {name: whole(name, value) for name, value in pieces.together().items()}
    return whole.seen(values, {}, result, Arguments(torch.tensor([read], dtype=torch.long), {}))


def edit_generating(model: Transformer, prompt: Prompt, edits: Edits, **options: Unpack[Options]) -> Result:
    """Let a model write on from a prompt with interventions in every step; returns what `clearhead.generate` does.

    A position that an edit is limited to is one of the whole text; -1 is the token a step reads.

    Raises:
        UsageError: several prompts, a beam search, or a text that goes on from a kept one.
        ClearheadError: as `clearhead.edit` and `clearhead.generate`.
    """
    return _run(model, prompt, Steps(), edits, options)[0]


def _run(
    model: Transformer, prompt: Prompt, progress: Steps, edits: Edits | None, options: Options, *taps: Taps
) -> tuple[Result, list[int]]:
    """The answer, and all tokens that the decoder read."""
    if options.get("state") is not None:
        raise UsageError("a kept text was read before anybody looked; give the whole text as the prompt")
    if options.get("n_beams", 1) != 1:
        raise UsageError("a beam search goes back and forth between texts; look at one that is drawn, or leave n_beams")
    looking = Chain(progress, Editor(edit_functions(model, edits or {}, progress)), *taps)
    how: Options = {**options, "taps": looking, "keep": True, "prefill_chunk": 2**31}
    asked: Any = prompt
    found: Result | list[Result] = generate(model, asked, **how)
    result = found[0] if isinstance(found, list) else found
    assert result.state is not None
    read = result.state.tokens[: result.state.n_read]
    return (result if options.get("keep") else replace(result, state=None)), read


class Steps(Progress):
    """The prompt in one pass, then a token each. A later pass of more than one reads all of them again."""

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        if name == FIRST and value.shape[0] != 1:
            raise UsageError(f"one prompt is looked at while a model writes, not {value.shape[0]}: call once for each")
        return super().__call__(path, name, value)

    def begin(self, path: str, n_slots: int) -> None:
        before = self.now.get(path)
        start = 0 if before is None or n_slots > 1 else before.stop
        self.now[path] = Slots(start, start + n_slots)


class Pieces:
    """Taps that keep what each step adds."""

    def __init__(self, sites: Mapping[str, Site], device: torch.device | str | None) -> None:
        self.sites = sites
        self.device = device
        self.found: dict[str, list[tuple[int, Tensor]]] = {}

    def mode(self, path: str, name: str) -> Mode:
        return "read" if address(path, name) in self.sites else "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        where = address(path, name)
        site = self.sites.get(where)
        slots = None if site is None else site.slots(site.token_letter)
        if site is None or slots is None:
            return value
        # Of keys and values, all that are remembered are there: the last ones are new. Of a text that is read again,
        # scores are made of the last token alone.
        axis = site.axis(site.token_letter)
        n_new = min(slots.stop - slots.start, value.shape[axis])
        new = value.narrow(axis, value.shape[axis] - n_new, n_new)
        new = new.to(self.device, copy=True) if self.device is not None else new.clone()
        if n_new == slots.stop:
            self.found[where] = []
        self.found[where].append((slots.stop, new))
        return value

    def together(self) -> dict[str, Tensor]:
        """One value for each place: of the whole text."""
        return {where: self._together(self.sites[where], pieces) for where, pieces in self.found.items()}

    def _together(self, site: Site, pieces: list[tuple[int, Tensor]]) -> Tensor:
        values = [value for _, value in pieces]
        if site.name in NOTHING and site.stack(KEYS) != SOURCE:
            # Keys end where the step's queries did; more came later, and a window had let go of earlier ones.
            whole = pieces[-1][0]
            values = [
                F.pad(value, (stop - value.shape[-1], whole - stop), value=NOTHING[site.name]) for stop, value in pieces
            ]
        return torch.cat(values, dim=site.axis(site.token_letter))
