"""For every family: what a file, a head or a call has wrong is refused in one error that names it."""

from __future__ import annotations

import json
import re
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import clearhead
from clearhead.checkpoints import open_checkpoint
from clearhead.checkpoints.load import blueprint
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES
from clearhead.inputs.audio import AudioProcessor
from clearhead.inputs.images import ImageProcessor
from tests import tiny
from tests.families.pairs import Inputs, Pair, named

FIRST = [(family, next(iter(records[0].configs))) for family, records in tiny.families().items()]
every_family = pytest.mark.parametrize("pair", FIRST, indirect=True, ids=[family for family, _ in FIRST])
HEADLESS = re.compile(r"(?<!LMHead)(?<!MT)Model$")
TASK = re.compile("Classification|QuestionAnswering")
HEADS = ("head.", "pool.", "labels.", "contacts.")

Tensors = dict[str, Tensor]


def changed(folder: Path, to: Path, change: Callable[[Tensors], Tensors] = dict, **config: Any) -> Path:
    """A copy of a checkpoint with other tensors, or other keys in its config."""
    to.mkdir()
    tensors = change(load_file(folder / "model.safetensors"))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, to / "model.safetensors")
    (to / "config.json").write_text(json.dumps({**json.loads((folder / "config.json").read_text()), **config}))
    return to


def problems(*args: Any, **kwargs: Any) -> list[str]:
    """The lines of the error that loading ends in."""
    with pytest.raises(ClearheadError) as found:
        clearhead.load(*args, **kwargs)
    return [line.strip() for line in str(found.value).splitlines() if line.startswith("  ")]


def inner(folder: Path, prefix: str) -> Callable[[Tensors], Tensors]:
    """The tensors of the model without its heads, as it is saved alone."""
    return lambda tensors: {
        name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)
    }


def known(pair: Pair, model: Any) -> Tensors:
    """The parameters that were read for the whole model, under the names they have in another class of its family."""
    every = dict(pair.ours.named_parameters())
    if getattr(pair.ours, "encoder", None) is None or model.encoder is not None:
        return every
    alone = {n.removeprefix("encoder."): p for n, p in every.items() if n.startswith("encoder.")}
    return {"embed.tokens.weight": every["embed.tokens.weight"], **alone}


# ---- files


@every_family
def test_an_unknown_key(pair: Pair, tmp_path):
    folder = changed(pair.folder, tmp_path / "copy", gates_per_head=3)
    with pytest.raises(ClearheadError, match=r"config\.json: not understood: 'gates_per_head' = 3"):
        clearhead.load(folder)


@every_family
def test_all_that_does_not_fit_in_one_error(pair: Pair, tmp_path):
    with open_checkpoint(pair.folder) as checkpoint:
        matches = blueprint(checkpoint).plan.matches
    of_layers = [m.files[-1] for m in matches if ".layers." in f".{m.parameters[0]}"]
    missing, bent = of_layers[len(of_layers) // 2], of_layers[-1]

    def spoil(tensors: Tensors) -> Tensors:
        whole = tensors[bent]
        rest = {name: tensor for name, tensor in tensors.items() if name != missing}
        return {**rest, bent: torch.cat([whole, whole[:1]]), "of_another.model": torch.zeros(2)}

    found = problems(changed(pair.folder, tmp_path / "copy", spoil))
    assert len(found) == 3
    assert f"the tensor {missing} is missing" in found
    assert "the tensor of_another.model has no place in this model" in found
    assert any(re.match(rf"{re.escape(bent)} has shape [\dx]+, and the config asks for [\dx]+", line) for line in found)


@every_family
def test_heads_that_the_file_lacks(pair: Pair):
    family, own = FAMILIES[pair.family], json.loads((pair.folder / "config.json").read_text())["architectures"]
    n_new = 0
    for architecture in family.architectures:
        with open_checkpoint(pair.folder) as checkpoint:
            new = set(blueprint(checkpoint, architecture=architecture, new_head=True).plan.new)
        assert all(name.startswith(HEADS) for name in new)
        n_new += len(new)
        if new and not HEADLESS.search(architecture):
            lines = problems(pair.folder, architecture=architecture)
            assert all(re.search(r"is missing.*; new_head=True \(--new-head\) draws it at random", x) for x in lines)
        made = clearhead.load(pair.folder, architecture=architecture, new_head=True)
        before = known(pair, made)
        for name, parameter in made.named_parameters():
            assert parameter.isfinite().all()
            if name in new:
                assert parameter.ndim < 2 or parameter.std() > 0, name
            elif name in before:
                assert torch.equal(parameter, before[name]), name
            else:  # A part of another head, which the file has for several.
                assert name.startswith(HEADS)
                assert any(torch.equal(parameter, one) for one in before.values() if one.shape == parameter.shape)
        alone = pair.inputs.source is not None and made.encoder is None
        asked = Inputs(tokens=pair.inputs.source) if alone else pair.inputs
        assert all(value.isfinite().all() for value in named(pair.ask(asked, made)).values())
    others = [name for name in family.architectures if TASK.search(name) and name not in own]
    assert n_new > 0 or not others


@every_family
def test_a_head_that_is_not_asked_for(pair: Pair, tmp_path):
    family, tensors = FAMILIES[pair.family], load_file(pair.folder / "model.safetensors")
    prefix = family.weights.prefix
    for architecture in filter(HEADLESS.search, family.architectures):
        bare = clearhead.load(pair.folder, architecture=architecture)
        clearhead.save(bare, tmp_path / architecture)
        needed = {prefix + name for name in load_file(tmp_path / architecture / "model.safetensors")}
        assert set(bare.origin.unused) == tensors.keys() - needed
        before = known(pair, bare)
        assert all(torch.equal(parameter, before[name]) for name, parameter in bare.named_parameters())


@every_family
def test_headless_files(pair: Pair, tmp_path):
    family = FAMILIES[pair.family]
    folder = changed(pair.folder, tmp_path / "inner", inner(pair.folder, family.weights.prefix))
    for architecture in filter(HEADLESS.search, family.architectures):
        bare = clearhead.load(folder, architecture=architecture)
        before = known(pair, bare)
        assert all(torch.equal(parameter, before[name]) for name, parameter in bare.named_parameters())
    made = clearhead.load(folder, new_head=True)
    before = known(pair, made)
    for name, parameter in made.named_parameters():
        assert torch.equal(parameter, before[name]) or name.startswith(HEADS), name


def test_a_class_that_answers_questions_of_another_file(tmp_path):
    """Some call their inner model otherwise; a new head is put on a model of any name, and saved under its own."""
    tiny.make("llama").save_pretrained(tmp_path / "writes")
    made = clearhead.load(tmp_path / "writes", architecture="LlamaForQuestionAnswering", new_head=True)
    assert made.origin.unused == ("lm_head.weight",)
    clearhead.save(made, tmp_path / "answers")
    names = load_file(tmp_path / "answers" / "model.safetensors").keys()
    assert {name.split(".")[0] for name in names} == {"transformer", "qa_outputs"}
    again = clearhead.load(tmp_path / "answers")
    assert all(torch.equal(p, made.get_parameter(name)) for name, p in again.named_parameters())


# ---- calls


def wrong_calls(pair: Pair) -> Iterator[tuple[dict[str, Any], str]]:
    """What each kind of model can't be called with, and what it says."""
    x, towers = pair.inputs, pair.tiny.kind == "towers"
    given = {("tokens_BT" if name == "tokens" else name): value for name, value in x.given().items()}
    yield {}, "give texts" if towers else "none were given"
    for name, value in given.items():
        words = name.removesuffix("_BT")
        if name != "token_types":
            yield {**given, name: [row.tolist() for row in value][:-1]}, f"{words} must be a tensor, not a list"
    if x.tokens is not None:
        ragged = [[3, 4, 5], [3, 4]]
        yield {**given, "tokens_BT": ragged}, r"unequal lengths are padded to one length, and present= says where"
        yield (
            {**given, "present": torch.ones(3, 4, dtype=torch.bool)},
            r"present has shape \(3, 4\) and tokens \(3, 20\)",
        )
        yield {**given, "tokens_BT": x.tokens + 10**6}, "is not in this model's vocabulary"
        yield {**given, "tokens_BT": x.tokens.float()}, "whole numbers"
    elif not towers:
        yield {**given, "tokens_BT": torch.zeros(3, 4, dtype=torch.long)}, "reads no tokens"
        yield {**given, "present": torch.ones(3, 4, dtype=torch.bool)}, "reads no tokens"
    if x.pixels is not None:
        yield (
            {**given, "pixels": x.pixels[0]},
            r"pixels must be real numbers of shape \(rows, channels, height, width\)",
        )
        yield {**given, "pixels": x.pixels.byte()}, "pixels must be real numbers"
        yield {**given, "pixels": x.pixels[:, :, :-1]}, "can't be cut into squares"
        yield {**given, "pixels": x.pixels[:, :1].repeat(1, 5, 1, 1)}, "channels"
    if x.frames is not None:
        yield {**given, "frames": x.frames[0]}, r"frames must be real numbers of shape \(rows, bands, frames\)"
        yield {**given, "frames": x.frames[:, 1:]}, "bands"
        yield {**given, "frames": x.frames[:1]}, "1 sources and 3 rows"
        yield {**given, "source": x.tokens}, "this model reads frames, and source were given"
    if towers:
        yield {"pixels": x.pixels, "present": torch.ones(3, 4, dtype=torch.bool)}, "present says where"
        return
    if x.pixels is None:
        yield {**given, "pixels": torch.zeros(3, 3, 16, 16)}, r"this model reads \w+, and pixels were given"
    if x.frames is None:
        yield {**given, "frames": torch.zeros(3, 80, 30)}, r"this model reads \w+, and frames were given"
    if x.source is not None:
        yield {**given, "source": x.source[:2]}, "2 sources and 3 rows"
        yield {**given, "source_present": torch.ones(3, 4, dtype=torch.bool)}, r"source_present has shape .* and source"
        yield {"tokens_BT": x.tokens}, "looks at a source"
    elif x.frames is None:
        yield {**given, "source": torch.zeros(3, 4, dtype=torch.long)}, "no (encoder|tokens)"
    if x.token_types is not None:
        yield {**given, "token_types": x.token_types + 3}, r"type \d is not one of this model's \d kinds"
        yield {**given, "token_types": x.token_types - 1}, "type -1 is not one of"
        yield {**given, "token_types": x.token_types.tolist()}, "token_types must be a tensor"
        yield {**given, "token_types": x.token_types[:, 1:]}, "token_types has shape"
    elif x.tokens is not None:
        yield {**given, "token_types": torch.zeros_like(x.tokens)}, "no kinds of token"


@every_family
def test_calls_that_make_no_sense(pair: Pair, without_shape_checks):
    for given, words in wrong_calls(pair):
        with pytest.raises(ClearheadError, match=words) as found, torch.no_grad():
            pair.ours(**given)
        assert "\n" not in str(found.value)
    assert all(value.isfinite().all() for value in named(pair.ask(pair.inputs)).values())


def test_a_picture_that_is_none(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"no picture at all")
    with pytest.raises(ClearheadError, match=r"picture\.png can't be read as a picture"):
        ImageProcessor()(path)


def test_sound_at_another_rate(tmp_path):
    path = tmp_path / "sound.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(1600))
    with pytest.raises(ClearheadError, match=r"sound\.wav has 8,000 samples a second, and this model hears 16,000"):
        AudioProcessor()(path)
    with pytest.raises(ClearheadError, match="44,100 samples a second"):
        AudioProcessor()(torch.zeros(800), rate=44100)
