"""What an encoder is to read: texts or sounds, and how the decoder's own text begins."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.config import FramesConfig, LearnedPositions, SinusoidalPositions, TransformerConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.prompts import Prompt, read_texts

if TYPE_CHECKING:
    from clearhead.generation.options import Overflow
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True)
class Source:
    """One text or one sound a row."""

    ids: list[list[int]]
    """The token ids of each row; empty for sounds."""
    frames_BMF: Tensor | None = None

    def inputs(self, device: torch.device) -> dict[str, Tensor]:
        """What the model's first pass is given."""
        if self.frames_BMF is not None:
            return {"frames": self.frames_BMF.to(device)}
        width = max(map(len, self.ids))
        source_BS = torch.tensor([ids + [0] * (width - len(ids)) for ids in self.ids], device=device)
        if all(len(ids) == width for ids in self.ids):
            return {"source": source_BS}
        length_B1 = torch.tensor([[len(ids)] for ids in self.ids], device=device)
        return {"source": source_BS, "source_present": torch.arange(width, device=device) < length_B1}

    def key(self, row: int) -> Hashable:
        """Rows with one key have the same source."""
        if self.frames_BMF is not None:
            return hash(self.frames_BMF[row].float().cpu().numpy().tobytes())
        return tuple(self.ids[row])


def read_source(model: Transformer, prompt: Prompt, present: Tensor | None, overflow: Overflow) -> tuple[Source, bool]:
    """The source of each row, and whether there were several.

    Texts are what `read_texts` takes. Sounds are files, arrays of samples, or spectrograms (bands, frames); a list of
    them is several, and so is a tensor (sounds, bands, frames).
    """
    encoder = model.config.encoder
    assert encoder is not None
    if isinstance(encoder.embed.front, FramesConfig):
        frames_BMF, many = _read_sounds(model, prompt, encoder.embed.front.n_mels)
        return Source([[] for _ in frames_BMF], frames_BMF), many
    rows, many = read_texts(model, prompt, present)
    if not all(rows):
        raise ClearheadError("the source is empty; give at least one token for the encoder to read")
    return Source([_fit(ids, source_window(model.config), overflow) for ids in rows]), many


def _read_sounds(model: Transformer, sounds: Any, n_mels: int) -> tuple[Tensor, bool]:
    """Spectrograms (B, bands, frames), and whether there were several sounds."""
    several = isinstance(sounds, list | tuple) and not all(isinstance(x, int | float) for x in sounds)
    many = several or (isinstance(sounds, Tensor) and sounds.ndim == 3)
    frames = [_spectrogram(model, sound, n_mels) for sound in (sounds if many else [sounds])]
    if len({one.shape for one in frames}) != 1:
        shapes = sorted(str(list(one.shape)) for one in frames)
        raise UsageError(f"the spectrograms of one call are of one shape, and these are {', '.join(shapes) or 'none'}")
    return torch.stack(frames), many


def _spectrogram(model: Transformer, sound: Any, n_mels: int) -> Tensor:
    """A sound as a spectrogram, which it may be already."""
    if isinstance(sound, Tensor) and sound.ndim == 2 and sound.shape[0] == n_mels and sound.is_floating_point():
        return sound
    if model.origin is None:
        raise ClearheadError(
            f"a model that was not loaded does not say how sounds are prepared; give spectrograms of {n_mels} bands "
            "(bands, frames), as clearhead.inputs.audio.AudioProcessor makes them"
        )
    from clearhead.inputs.audio import AudioProcessor

    return AudioProcessor.from_folder(model.origin.where)(sound)[0]


def source_window(config: TransformerConfig) -> int | None:
    """How many tokens the encoder beside a decoder can read."""
    assert config.encoder is not None
    places = config.encoder.embed.positions
    if isinstance(places, LearnedPositions):
        return places.n - places.offset
    return places.n if isinstance(places, SinusoidalPositions) else config.context


def _fit(ids: list[int], window: int | None, overflow: Overflow) -> list[int]:
    if window is None or len(ids) <= window:
        return ids
    if overflow == "refuse":
        raise ClearheadError(
            f"the source is {len(ids)} tokens and this model's encoder reads {window}; shorten it, or have it cut "
            '(overflow="cut_left", on the command line --overflow cut_left)'
        )
    return ids[len(ids) - window :]


def beginning(model: Transformer, advised: Mapping[str, Any], given: str | Sequence[int] | None) -> list[int]:
    """What the decoder's text begins with: the token it starts from, and the tokens `given`, or those that the
    generation config forces behind it.
    """
    start = advised.get("decoder_start_token_id", model.config.ids.decoder_start)
    start = model.config.ids.bos if start is None else start
    if isinstance(given, str):
        if model.tokenizer is None:
            raise ClearheadError("this model has no tokenizer, so it can't read decoder_prompt as text; give token ids")
        given = model.tokenizer.encode(given, bos=False, parse_special=True)
    if given is None:
        given = forced(advised)
    if start is None and not given:
        raise ClearheadError(
            "the model does not say what its decoder starts from (decoder_start_token_id); give decoder_prompt"
        )
    ids = [int(token) for token in given]
    return ids if start is None or start in ids else [start, *ids]


def forced(advised: Mapping[str, Any]) -> list[int]:
    """The tokens forced at places 1, 2, ... of the decoder's text, up to the first that is left open."""
    forced = dict(advised.get("forced_decoder_ids") or ())
    ids: list[int] = []
    while forced.get(len(ids) + 1) is not None:
        ids.append(forced[len(ids) + 1])
    return ids
