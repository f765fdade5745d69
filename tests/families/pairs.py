"""The same weights in the `transformers` package and here, and one way to ask both for every kind of model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import clearhead
from clearhead.config import FramesConfig, PatchesConfig, TokensConfig, TransformerConfig
from clearhead.taps import Recorder
from tests import tiny
from tests.oracles import error
from tests.tiny import Kind, Tiny

N_ROWS, N_TOKENS, N_SOURCE = 3, 20, 14
NAMES: dict[str, tuple[str, ...]] = {
    "": ("logits", "last_hidden_state"),
    "tokens": ("prediction_logits", "logits", "last_hidden_state"),
    "stream": ("last_hidden_state",),
    "pooled": ("pooler_output",),
    "next": ("seq_relationship_logits", "sop_logits"),
}
"""What `transformers` calls each of our outputs; a head of another name is sought as NAME, NAME_logits, NAME_embeds."""


@dataclass(frozen=True)
class Inputs:
    """What a model is asked, in our names. `tokens` are the decoder's where there is a source or a sound."""

    tokens: Tensor | None = None
    token_types: Tensor | None = None
    source: Tensor | None = None
    pixels: Tensor | None = None
    frames: Tensor | None = None

    def given(self) -> dict[str, Tensor]:
        """The inputs there are, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def row(self, b: int) -> Inputs:
        """Row `b` alone."""
        return Inputs(**{name: value[b : b + 1] for name, value in self.given().items()})

    def slots(self, which: slice | Tensor) -> Inputs:
        """Some of the token slots; all the rest as it is."""
        chosen = {name: self.given()[name][:, which] for name in ("tokens", "token_types") if name in self.given()}
        return replace(self, **chosen)


@dataclass
class Pair:
    """One case of one family."""

    family: str
    name: str
    tiny: Tiny
    theirs: nn.Module
    ours: Any
    folder: Path
    inputs: Inputs

    @property
    def first(self) -> bool:
        """Whether this is the family's ordinary model, which is tested at every split."""
        return self.name == next(iter(self.tiny.configs))

    @cached_property
    def whole(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What both give for all inputs: ours, and theirs under our names."""
        outputs = named(self.ask(self.inputs))
        return outputs, self.expected(self.inputs, outputs)

    @cached_property
    def saved(self) -> Path:
        """The folder that our model was saved to."""
        folder = self.folder.parent / f"{self.folder.name}-saved"
        clearhead.save(self.ours, folder)
        return folder

    def ask(self, x: Inputs, model: Any = None, **how: Any) -> Any:
        """What our model gives."""
        given = x.given()
        model = self.ours if model is None else model
        with torch.no_grad():
            return model(given.pop("tokens"), **given, **how) if "tokens" in given else model(**given, **how)

    def ask_them(self, x: Inputs, model: nn.Module | None = None, **how: Any) -> Any:
        """What their model gives."""
        with torch.no_grad():
            return (self.theirs if model is None else model)(**self.in_their_names(x), **how)

    def in_their_names(self, x: Inputs) -> dict[str, Tensor]:
        """The inputs as `transformers` calls them."""
        crossed = self.tiny.kind in ("seq2seq", "audio")
        names = {
            "tokens": "decoder_input_ids" if crossed else "input_ids",
            "token_types": "token_type_ids",
            "source": "input_ids",
            "pixels": "pixel_values",
            "frames": "input_features",
        }
        return {names[name]: value for name, value in x.given().items()}

    def expected(self, x: Inputs, ours: Mapping[str, Tensor], model: nn.Module | None = None) -> dict[str, Tensor]:
        """What their model gives for each of our outputs."""
        out = self.ask_them(x, model)
        return {name: their_output(out, name) for name in ours}

    def record(self, x: Inputs, *addresses: str, **how: Any) -> dict[str, Tensor]:
        """The values at these addresses in one pass of ours."""
        recorder = Recorder(addresses)
        self.ask(x, taps=recorder, **how)
        return recorder.values


def named(out: Any) -> dict[str, Tensor]:
    """Our outputs by name; a single one has none."""
    return {"": out} if isinstance(out, Tensor) else {k: v for k, v in out._asdict().items() if v is not None}


def their_output(out: Any, name: str) -> Tensor:
    """The output of `transformers` that ours of this name must equal."""
    if name in ("", "spans") and "start_logits" in out:
        return torch.stack([out.start_logits, out.end_logits], dim=-1)
    candidates = (*NAMES.get(name, ()), name, f"{name}_logits", f"{name}_embeds")
    found: Tensor | None = next((out[key] for key in candidates if out.get(key) is not None), None)
    assert found is not None, f"transformers gives {sorted(out)}, and nothing for {name!r}; add it to pairs.NAMES"
    return found


def worst(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """The largest error of outputs with the same names; infinite where the names differ."""
    return max(error(a[name], b[name]) for name in a) if a.keys() == b.keys() else math.inf


def make_pair(family: str, name: str, folder: Path) -> Pair:
    """Build, save and load one case."""
    record = tiny.record_of(family, name)
    theirs = record.make(**record.configs[name])
    theirs.save_pretrained(folder)
    ours = clearhead.load(folder)
    return Pair(family, name, record, theirs, ours, folder, inputs_for(record.kind, ours.config))


def inputs_for(kind: Kind, config: Any, seed: int = 1) -> Inputs:
    """Random inputs of every sort that a model takes; special tokens that it looks for are among them."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "towers":
        text, image = inputs_for("decoder", config.text), inputs_for("vision", config.image)
        return replace(text, pixels=image.pixels)
    assert isinstance(config, TransformerConfig)
    front = config.stack.embed.front
    if isinstance(front, PatchesConfig):
        pixels = torch.randn(N_ROWS, front.channels, *front.image, generator=generator)
        return Inputs(pixels=pixels)
    assert isinstance(front, TokensConfig)
    inputs = Inputs(tokens=_tokens(front, N_TOKENS, generator))
    if config.heads.pool is not None and config.heads.pool.end_id is not None:
        _put(inputs, config.heads.pool.end_id, [(0, N_TOKENS - 1), (1, 9), (2, 0)])
    if front.n_types:
        types = torch.randint(front.n_types, (N_ROWS, N_TOKENS), generator=generator)
        inputs = replace(inputs, token_types=types)
    if config.encoder is None or config.decoder is None:
        return inputs
    source = config.encoder.embed
    if isinstance(source.front, FramesConfig):
        assert source.positions is not None
        n_frames = source.positions.n * math.prod(source.front.strides)
        return replace(inputs, frames=torch.randn(N_ROWS, source.front.n_mels, n_frames, generator=generator))
    assert isinstance(source.front, TokensConfig)
    return replace(inputs, source=_tokens(source.front, N_SOURCE, generator))


def _tokens(front: TokensConfig, n: int, generator: torch.Generator) -> Tensor:
    tokens = torch.randint(3, front.vocab_size, (N_ROWS, n), generator=generator)
    if front.mask_dropout is not None:
        mask_id = front.mask_dropout.mask_id
        tokens[tokens == mask_id] = 3 if mask_id != 3 else 4
        tokens[0, 2] = tokens[0, 11] = tokens[1, 7] = tokens[2, 3] = mask_id
    return tokens


def _put(inputs: Inputs, token: int, places: list[tuple[int, int]]) -> None:
    assert inputs.tokens is not None
    other = token - 1 if token > 3 else token + 1
    inputs.tokens[inputs.tokens == token] = other
    for row, slot in places:
        inputs.tokens[row, slot] = token
