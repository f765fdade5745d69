"""`clearhead.load` and `clearhead.save`: a checkpoint and a family make a model, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.checkpoints.checkpoint import Checkpoint
from clearhead.checkpoints.keeping import Keeping, Weights, in_blocks, keeping_of
from clearhead.checkpoints.source import open_checkpoint
from clearhead.checkpoints.write import write_checkpoint
from clearhead.config import Scaling, TransformerConfig, TwoTowersConfig
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES, Family, family_of, gguf_config, gguf_family_of
from clearhead.families.family import GGUFFile
from clearhead.families.rope import scaling_from
from clearhead.families.weights import Match, Plan, expand, plan
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.model.build import build
from clearhead.model.init import initialise
from clearhead.model.rope import with_rope
from clearhead.model.transformer import Transformer
from clearhead.ops.quantised import QuantisedTensor, plain

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@dataclass(frozen=True)
class Origin:
    """Where a model came from: what `save` needs to write it as it was found."""

    family: Family
    raw_config: dict[str, Any]
    where: str = ""
    sidecar_files: dict[str, Path] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    """Tensors that the checkpoint has for heads that this model was not asked to have."""
    new: tuple[str, ...] = ()
    """Parameters that the checkpoint lacks, which began as random numbers."""


@dataclass(frozen=True)
class Blueprint:
    """A checkpoint understood, with nothing read yet: the model on the meta device, and which tensor goes where."""

    model: Transformer
    plan: Plan
    origin: Origin


def blueprint(
    checkpoint: Checkpoint,
    *,
    architecture: str | None = None,
    new_head: bool = False,
    labels: Sequence[str] = (),
    rope: Scaling | Mapping[str, Any] | None = None,
) -> Blueprint:
    """Work out the model that a checkpoint holds, without reading its weights. As in `load`.

    Raises:
        ClearheadError: the config or the names and shapes of the weights are not those of a known family.
    """
    shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
    if checkpoint.format == "gguf":
        config_file = checkpoint.where
        family, gguf = gguf_family_of(checkpoint.config, config_file)
        file = GGUFFile(shapes, lambda name: checkpoint.read(name).tolist())
        raw = gguf_config(family, gguf, checkpoint.config, file, checkpoint.where)
        layout = gguf.weights
    else:
        raw = checkpoint.config if architecture is None else {**checkpoint.config, "architectures": [architecture]}
        raw = {**raw, **_named(labels)}
        config_file = str(Path(checkpoint.where) / "config.json")
        family = family_of(raw, config_file)
        if family.told is not None and not new_head:
            raw = {**raw, **family.told(raw, shapes)}
        layout = family.weights.suiting(shapes)
    config = family.read(raw, config_file)
    if rope is not None:
        config = _rescaled(config, rope, raw)
    with torch.device("meta"):
        model = build(config)
    parameters = {name: tuple(p.shape) for name, p in model.named_parameters()}
    if labels:
        others = {file for m in expand(layout, parameters, config) if _of_labels(m.parameters) for file in m.files}
        shapes = {name: shape for name, shape in shapes.items() if layout.spelled_today(name) not in others}
    wanted = plan(layout, parameters, shapes, config, checkpoint.where, new_head)
    for info in (checkpoint.tensors[file] for match in wanted.matches for file in match.files):
        if isinstance(info.dtype, torch.dtype) and info.dtype not in DTYPES.values():
            raise ClearheadError(
                f"{info.file}: {info.name!r} is stored as {str(info.dtype).removeprefix('torch.')}; weights are read "
                f"from {', '.join(DTYPES)}, and quantised ones from GGUF"
            )
    files, unused, new = dict(checkpoint.sidecar_files), tuple(wanted.unused), tuple(wanted.new)
    origin = Origin(family, raw, checkpoint.where, files, unused, new)
    return Blueprint(model, wanted, origin)


def load(
    source: str | Path,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str = "cpu",
    *,
    revision: str | None = None,
    token: str | None = None,
    architecture: str | None = None,
    new_head: bool = False,
    labels: Sequence[str] = (),
    rope: Scaling | Mapping[str, Any] | None = None,
    weights: Weights = "plain",
) -> Transformer:
    """Load a model: a folder in the Hub's layout, a .gguf file, a Hub id, or the name of a model that this
    package or another ships (`clear-2l@0003` is a snapshot along the training of one).

    Args:
        source: where it is.
        dtype: of the weights; None keeps the checkpoint's (float32 for quantised files and for this package's own
            models, bfloat16 for MXFP4 files).
        device: where the weights go.
        revision: branch, tag or commit, for a Hub id.
        token: access token, for a Hub id.
        architecture: the published class to build, such as BertForSequenceClassification; None is the config's own.
        new_head: a head that the checkpoint lacks is drawn at random, to be trained; otherwise it is refused.
        labels: names of labels, for a new head of them. One that the checkpoint has is of others, and not read.
        rope: another scaling of rotary positions, for texts longer than the model was trained on: a record such as
            YarnScaling, or a mapping in the words of published configs, {"rope_type": "yarn", "factor": 4.0}.
        weights: how the matrices are kept. "plain": as numbers of `dtype`. "stored": those that a GGUF file has
            quantised stay in its blocks, where the file is mapped into memory; "auto": so from such a file, else plain.
            "int8" and "int4": made so from any checkpoint (8.5 and 4.5 bits a weight). Kept so they can only be read,
            and are several times as fast to decode with; docs/speed.md says what each loses.

    Raises:
        ClearheadError: anything about the source that is not understood; nothing is guessed and nothing is random.
    """
    wanted, keeping = _dtype(dtype), keeping_of(weights, torch.device(device))
    with open_checkpoint(source, revision=revision, token=token) as checkpoint:
        made = blueprint(checkpoint, architecture=architecture, new_head=new_head, labels=labels, rope=rope)
        model, origin = made.model, made.origin
        tokenizer = _tokenizer(checkpoint, model)
        kind = wanted or usual_dtype(checkpoint)
        _fill(model, made.plan, checkpoint, kind, torch.device(device), keeping)
    model.tokenizer = tokenizer
    model.origin = origin
    return model.eval()


def load_tokenizer(source: str | Path, *, architecture: str | None = None) -> Tokenizer | None:
    """The tokenizer that `load` would give a model, and none of its weights.

    Raises:
        ClearheadError: the model reads tokens, and no tokenizer came with it.
    """
    with open_checkpoint(source) as checkpoint:
        model = blueprint(checkpoint, architecture=architecture, new_head=True).model
        tokenizer = _tokenizer(checkpoint, model)
        if tokenizer is None and model.takes_tokens:
            raise ClearheadError(
                f"{checkpoint.where} has no tokenizer, so there is no knowing what its token ids stand for; put the "
                "files that came with the model (tokenizer.json) beside its weights"
            )
        return tokenizer


def _named(labels: Sequence[str]) -> dict[str, Any]:
    """What a config says of labels with these names."""
    if not labels:
        return {}
    names = dict(enumerate(labels))
    return {"id2label": {str(i): name for i, name in names.items()}, "label2id": {n: i for i, n in names.items()}}


def _of_labels(parameters: Sequence[str]) -> bool:
    return parameters[0].startswith("labels.")


def _rescaled(
    config: TransformerConfig | TwoTowersConfig, rope: Scaling | Mapping[str, Any], raw: Mapping[str, Any]
) -> TransformerConfig:
    if isinstance(rope, str):
        raise ClearheadError(f'rope is {rope!r}; give a mapping such as {{"rope_type": "yarn", "factor": 4.0}}')
    if not isinstance(rope, Mapping):
        return with_rope(config, rope)
    context = config.context if isinstance(config, TransformerConfig) else None
    return with_rope(config, scaling_from(rope, context, raw.get("original_max_position_embeddings")))


def save(
    model: Transformer,
    folder: str | Path,
    *,
    family: str | None = None,
    labels: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model as the Hub lays it out: config.json, model.safetensors, and the tokenizer's files as they were.

    Args:
        model: what to save.
        folder: where; made if missing, and never left half-written.
        family: the published architecture to write it as, for a model that was not loaded.
        labels: what the labels of its head are called, in order.
        files: what else stands beside the weights, by name: preprocessor_config.json.

    Raises:
        ClearheadError: the family is not known, or does not have a place for one of the model's parameters.
    """
    origin = model.origin
    if family is not None:
        origin = Origin(family_of({"model_type": family}, "save"), {})
    if origin is None:
        known = ", ".join(FAMILIES)
        raise ClearheadError(f"this model was not loaded from anywhere; say save(..., family=...) with one of {known}")
    config = origin.family.write(model.config, origin.raw_config)
    config.pop("torch_dtype", None)
    config |= {"dtype": str(model.dtype).removeprefix("torch."), **_named(labels)}
    # A tokenizer that came from a folder is carried along as its files; one from elsewhere writes its own.
    carried = origin.sidecar_files or (model.tokenizer.files() if model.tokenizer is not None else {})
    write_checkpoint(folder, config, _file_tensors(model, origin.family), {**carried, **(files or {})})


def _file_tensors(model: Transformer, family: Family) -> Iterator[tuple[str, Tensor]]:
    parameters = dict(model.named_parameters())
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    with torch.device("meta"):
        expected = {name: tuple(p.shape) for name, p in build(model.config).named_parameters()}
    odd = next((name for name, shape in shapes.items() if expected.get(name, shape) != shape), None)
    if odd is not None:
        raise ClearheadError(f"{odd} has shape {list(shapes[odd])}, and the model's config says {list(expected[odd])}")
    layout = family.weights.writing(model.config)
    matches = expand(layout, shapes, model.config)
    homeless = set(parameters) - {name for match in matches for name in match.parameters}
    if homeless:
        raise ClearheadError(f"a {family.model_type} checkpoint has no place for {', '.join(sorted(homeless)[:4])}")
    for match in matches:
        tensors = match.op.save([plain(parameters[name].detach()) for name in match.parameters], model.config)
        yield from zip(match.files, tensors, strict=True)
    for name, make in layout.constants.items():
        if (constant := make(model.config)) is not None:
            yield name, constant.to(model.dtype)


def _fill(
    model: Transformer, wanted: Plan, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, keeping: Keeping
) -> None:
    """Read every tensor into its place, one at a time."""
    found = _owners(model)
    owners = {name: found[id(parameter)] for name, parameter in model.named_parameters()}

    def put(name: str, data: Tensor) -> None:
        """A parameter that so far has only a shape, in every module that shares it."""
        old = model.get_parameter(name)
        parameter = nn.Parameter(data, old.requires_grad and not isinstance(data, QuantisedTensor))
        for owner, leaf in owners[name]:
            setattr(owner, leaf, parameter)

    def place(name: str, file: str | None = None) -> Tensor:
        """Real memory for a parameter."""
        old, kind = model.get_parameter(name), dtype
        stored = checkpoint.tensors[file].dtype if file is not None else dtype
        if isinstance(stored, torch.dtype) and any(leaf in getattr(m, "wide", ()) for m, leaf in owners[name]):
            kind = torch.promote_types(dtype, stored)
        put(name, torch.empty(old.shape, dtype=kind, device=device))
        return model.get_parameter(name).data

    kinds = {name: keeping.kind(model, name) for match in wanted.matches for name in match.parameters}
    plain_ones: list[tuple[Match, list[Tensor]]] = []
    for match in wanted.matches:
        stored = keeping.as_stored(match, model, checkpoint, dtype)
        if stored is not None:
            for name, tensor in zip(match.parameters, stored, strict=True):
                put(name, tensor)
        elif any(kinds[name] for name in match.parameters):
            _read(match, [place(name, match.files[0]) for name in match.parameters], checkpoint, model)
            for name in match.parameters:
                if (kind := kinds[name]) is not None:
                    put(name, in_blocks(model.get_parameter(name), kind))
        else:
            # All places first: made between the reads, they would pin the holes that the reads leave in the heap.
            plain_ones.append((match, [place(name, match.files[0]) for name in match.parameters]))
    new = [place(name) for name in wanted.new]
    if new:
        initialise(model, only=frozenset(wanted.new))
    for match, places in plain_ones:
        _read(match, places, checkpoint, model)
    for file, parameter in wanted.repeats:
        values, kind = model.get_parameter(parameter).detach(), kinds[parameter]
        again = checkpoint.read(file).to(dtype).view(values.shape)
        if not torch.equal(again if kind is None else in_blocks(again, kind), values.cpu()):
            raise ClearheadError(
                f"{checkpoint.where}: the config ties {parameter} and {file}, and the file has two that differ; set "
                "tie_word_embeddings to false in config.json to keep both, or delete the one that is not wanted"
            )


def _read(match: Match, places: list[Tensor], checkpoint: Checkpoint, model: Transformer) -> None:
    """Read the tensors of a row into their places."""
    views = match.op.views(places)
    if views is not None:
        for file, view in zip(match.files, views, strict=True):
            checkpoint.read_into(file, view)
        return
    files = [checkpoint.read(file) for file in match.files]
    for target, piece in zip(places, match.op.load(files, [tuple(p.shape) for p in places], model.config), strict=True):
        target.copy_(piece)


def _owners(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Every module that holds a parameter, by the parameter: some have several."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((module, leaf))
    return owners


def _tokenizer(checkpoint: Checkpoint, model: Transformer) -> Tokenizer | None:
    if not model.takes_tokens:
        return None
    if checkpoint.format == "gguf":
        if "tokenizer.ggml.tokens" not in checkpoint.config:
            return None
        tokenizer = Tokenizer.from_gguf(checkpoint.config, where=checkpoint.where)
    elif {"tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model"} & set(checkpoint.sidecar_files):
        tokenizer = Tokenizer.from_folder(Path(next(iter(checkpoint.sidecar_files.values()))).parent)
    else:
        return None
    tokenizer.check_matches(model.config.vocab_size, checkpoint.where)
    return tokenizer


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ClearheadError(f"the dtype {dtype!r} is not known; there are {', '.join(DTYPES)}")
    return DTYPES[dtype]


def usual_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """What the weights of a checkpoint become where nothing else is asked for."""
    return checkpoint.usual or _stored_dtype(checkpoint)


def _stored_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """What most of the checkpoint's numbers are stored as; where that is a quantisation, what it is read as."""
    numbers: Counter[torch.dtype | str] = Counter()
    for info in checkpoint.tensors.values():
        numbers[info.dtype] += info.numel
    dtype = numbers.most_common(1)[0][0]
    if not isinstance(dtype, torch.dtype):
        return checkpoint.unquantised
    return dtype if dtype.is_floating_point else torch.float32
