"""The data of a run on sounds: a tokenizer of what is said, spectrograms, batches, and what is measured in the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoints.source import open_checkpoint
from clearhead.config import FramesConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.files import write_whole
from clearhead.generation.source import forced
from clearhead.inputs.audio import AudioProcessor
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.model.transformer import Transformer
from clearhead.training import checkpoint
from clearhead.training.config import ModelConfig, SoundsConfig, SpectrogramConfig, StartConfig, TrainConfig
from clearhead.training.corpora import located
from clearhead.training.data.documents import hash_of
from clearhead.training.data.sound_batches import Numbers, Said, SoundBatches, split_sounds
from clearhead.training.data.sounds import SoundStore, find_clips, store_sounds
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from clearhead.training.measures.transcripts import ROWS, measure_transcripts
from clearhead.training.models import decoder_start, start_tokenizer
from clearhead.training.prepared import Prepared
from clearhead.training.start import newest

PROCESSOR = "preprocessor_config.json"
START, END, UNKNOWN = "<|startoftranscript|>", "<|endoftext|>", "<|unknown|>"


def prepare_sounds(config: TrainConfig, data: SoundsConfig, folder: Path, *, quiet: bool = False) -> Prepared:
    """Train the tokenizer and hear the sounds, or find that done in `folder`."""
    if config.objective.name != "source_to_target":
        raise UsageError(
            f"objective.name is {config.objective.name}, and of sounds it is learnt what is said; set it to "
            "source_to_target"
        )
    path, processor = located(data.path), fitting(config, data)
    tokenizer = start_tokenizer(config.model) or tokenizer_for(data, path, folder, quiet=quiet)
    store = store_sounds(path, data.columns, processor, folder, progress=False if quiet else None)
    said = said_with(config, tokenizer)
    batches = SoundBatches(store, said, processor, data, rows=config.batch.rows, length=config.batch.length)
    text = json.dumps(processor.to_config(), indent=2) + "\n"
    return Prepared(
        batches=batches,
        measure=lambda model: measure(model, store, batches.split.held_out()),
        tokenizer=tokenizer,
        files={PROCESSOR: text.encode()},
    )


def fitting(config: TrainConfig, data: SoundsConfig) -> AudioProcessor:
    """How sounds are heard: as the config says, or else as the checkpoint does, or as Whisper.

    Raises:
        ClearheadError: the model hears no sounds.
    """
    if isinstance(config.model, StartConfig):
        with open_checkpoint(newest(config.model.source)) as found:
            processor = AudioProcessor.from_folder(found.where)
        own = SpectrogramConfig(**{name: getattr(processor, name) for name in asdict(SpectrogramConfig())})
        if data.spectrogram not in (None, own):
            raise UsageError(f"{found.where} says itself how sounds are heard; leave data.spectrogram out")
        return processor
    encoder = config.model.config.encoder if isinstance(config.model, ModelConfig) else None
    if encoder is None or not isinstance(front := encoder.embed.front, FramesConfig):
        raise ClearheadError("the data is sounds, and this model hears none; take one whose encoder reads frames")
    return AudioProcessor(n_mels=front.n_mels, **asdict(data.spectrogram or SpectrogramConfig()))


def tokenizer_for(data: SoundsConfig, path: Path, folder: Path, *, quiet: bool = False) -> Tokenizer:
    """The tokenizer of what is learnt from: trained once, and from then on read from `folder`."""
    clips = find_clips(path, data.columns)
    learnt = split_sounds([c.text for c in clips], [c.speaker for c in clips], data.held_out, data.seed).learnt
    texts = [clips[i].text for i in learnt]
    inside = folder / f"tokenizer-{hash_of([texts, data.tokenizer, data.vocab_size])[:16]}"
    if not inside.is_dir():
        if not quiet:
            print(f"training a tokenizer ({data.tokenizer}, {data.vocab_size:,} ids)", file=sys.stderr, flush=True)
        marks = [("bos_token", START), ("eos_token", END), ("pad_token", END)]
        if data.tokenizer == "wordpiece":
            marks.append(("unk_token", UNKNOWN))
        made = train_tokenizer(
            texts, TokenizerConfig(kind=data.tokenizer, size=data.vocab_size, marks=tuple(marks), around=False)
        )
        with checkpoint.replacing(inside) as temporary:
            temporary.mkdir()
            for name, content in made.files().items():
                write_whole(temporary / name, content)
    return Tokenizer.from_folder(inside)


def said_with(config: TrainConfig, tokenizer: Tokenizer) -> Said:
    """How the decoder's text begins and ends: by the tokenizer's marks, or as the checkpoint advises.

    Raises:
        ClearheadError: there is no mark to begin or to end with.
    """
    start = decoder_start(config, tokenizer)
    begin = () if start is None else (start,)
    if isinstance(config.model, StartConfig):
        with open_checkpoint(newest(config.model.source)) as found:
            begin = (*begin, *forced(found.generation_config or found.config))
    if not begin or not tokenizer.eos_ids:
        lacks = "end" if begin else "beginning"
        raise ClearheadError(f"the tokenizer of {tokenizer.where} has no mark for the {lacks} of a text")
    return Said(tokenizer, begin, tokenizer.eos_ids[0])


def measure(model: Transformer, store: SoundStore, groups: dict[str, Numbers]) -> dict[str, Any]:
    """How well a model writes down what was held out, all together and by how it is new; nothing where nothing was."""
    numbers = [int(i) for which in groups.values() for i in which]
    if not numbers:
        return {}
    scores = measure_transcripts(model, _batches(store, numbers), [store.clips[i].text for i in numbers])
    ends = [0, *accumulate(len(which) for which in groups.values())]
    parts = {name: scores.of(range(*ends[i : i + 2])).summary() for i, name in enumerate(groups) if len(groups[name])}
    whole = scores.summary()
    return whole | {f"{key}_on": {name: part[key] for name, part in parts.items()} for key in whole}


def _batches(store: SoundStore, numbers: list[int]) -> Iterator[Tensor]:
    for first in range(0, len(numbers), ROWS):
        yield torch.from_numpy(store.frames_NMF[numbers[first : first + ROWS]]).float()
