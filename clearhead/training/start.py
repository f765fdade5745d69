"""The model that a run goes on from: loaded, changed as asked, and with only what is to move taking a gradient."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.checkpoints.load import load
from clearhead.checkpoints.source import open_checkpoint
from clearhead.checkpoints.write import BESIDE_WEIGHTS
from clearhead.errors import ClearheadError
from clearhead.model.kv_heads import grouped
from clearhead.model.transformer import Transformer
from clearhead.training import checkpoint
from clearhead.training.addresses import matching
from clearhead.training.config import StartConfig, TeacherConfig, TrainConfig
from clearhead.training.lora import add_lora

STAGE = "stage:"
"""Before the name of an earlier stage of a run, whose model is meant."""


def loaded(start: StartConfig, labels: Sequence[str] = ()) -> Transformer:
    """The model of a checkpoint, in float32, that takes gradients where `start` says. `labels` are for a new head.

    Raises:
        ClearheadError: the source can't be read, does not have the parts that are named, or its family has no words
            for what was made of it.
    """
    model = load(
        newest(start.source),
        torch.float32,
        architecture=start.architecture,
        new_head=start.new_head,
        labels=labels if start.new_head else (),
    )
    if start.n_kv_heads is not None:
        model = grouped(model, start.n_kv_heads)
    # Better known now than at the first checkpoint.
    model.origin.family.write(model.config, model.origin.raw_config)
    moving = _moving(model, start)
    if start.lora is not None:
        add_lora(model, start.lora)
    else:
        for parameter in model.parameters():
            parameter.requires_grad_(False)
    for parameter in moving:
        parameter.requires_grad_(True)
    return model.train()


def _moving(model: Transformer, start: StartConfig) -> list[nn.Parameter]:
    """The weights of the model itself that are trained."""
    parameters = dict(model.named_parameters())
    if start.train is not None:
        names = matching(parameters, start.train, "model.train", "weight")
    elif start.lora is not None:
        # A head of random numbers is of no use where it stays that.
        names = list(model.origin.new)
    else:
        names = list(parameters)
    # Some never take a gradient: they are counted, not learnt.
    return [parameters[name] for name in names if parameters[name].requires_grad]


def newest(source: str) -> Path | str:
    """The newest checkpoint, where `source` is the folder of a run; else `source` itself."""
    folder = Path(source).expanduser()
    if folder.is_dir() and not (folder / "config.json").exists() and (found := checkpoint.checkpoints(folder)):
        return found[-1][1]
    return source


def located(config: TrainConfig, folder: Path) -> TrainConfig:
    """A stage's config with the folders in `folder` of earlier stages, where it begins from their models."""

    def place(source: str) -> str:
        return str(folder / source.removeprefix(STAGE)) if source.startswith(STAGE) else source

    model, objective = config.model, config.objective
    if isinstance(model, StartConfig):
        model = replace(model, source=place(model.source))
    if objective.teacher is not None:
        objective = replace(objective, teacher=replace(objective.teacher, source=place(objective.teacher.source)))
    return replace(config, model=model, objective=objective)


def label_names(start: StartConfig) -> tuple[str, ...] | None:
    """What the labels of the checkpoint's own head are called, in its order; None where nobody has named them."""
    if start.new_head:
        return None
    with open_checkpoint(newest(start.source)) as opened:
        names: Any = opened.config.get("id2label")
    if not isinstance(names, Mapping):
        return None
    ordered = tuple(str(names[key]) for key in sorted(names, key=int))
    return None if all(name == f"LABEL_{i}" for i, name in enumerate(ordered)) else ordered


def load_teacher(config: TeacherConfig, student: Transformer) -> Transformer:
    """The model that is learnt from.

    Raises:
        ClearheadError: it reads other token ids than the student.
    """
    teacher = load(newest(config.source), torch.float32, student.device)
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    mine, theirs = student.tokenizer, teacher.tokenizer
    if mine is not None and theirs is not None:
        ours, others = (one.core.get_vocab(with_added_tokens=True) for one in (mine, theirs))
        odd = next((token for token, number in ours.items() if others.get(token) != number), None)
        odd = odd if odd is not None else next((token for token in others if token not in ours), None)
        if odd is not None:
            raise ClearheadError(
                f"objective.teacher.source: the teacher {config.source} has another vocabulary than the student: "
                f"{odd!r} is token {others.get(odd)} there and {ours.get(odd)} here; start both from one tokenizer"
            )
    return teacher


def hashes(config: TrainConfig) -> dict[str, str]:
    """A hash of each model that a run begins from, by setting."""
    found: dict[str, str] = {}
    if isinstance(config.model, StartConfig):
        found["model.source"] = hash_of_source(config.model.source)
    if config.objective.teacher is not None:
        found["objective.teacher.source"] = hash_of_source(config.objective.teacher.source)
    return found


def hash_of_source(source: str) -> str:
    """The SHA-256 of a model's config, weights and tokenizer: the same wherever its files lie."""
    with open_checkpoint(newest(source)) as opened:
        files = {Path(info.file).name: Path(info.file) for info in opened.tensors.values()}
        files |= {name: path for name, path in opened.sidecar_files.items() if name in BESIDE_WEIGHTS}
        digest = hashlib.sha256(json.dumps(opened.config, sort_keys=True, default=str).encode())
    for name in sorted(files):
        with files[name].open("rb") as file:
            digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return digest.hexdigest()
