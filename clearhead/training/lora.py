"""Low-rank adapters beside a model's projections, by the library `peft` (Hu 2021, LoRA)."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from clearhead.errors import ClearheadError
from clearhead.families.row_ops import Same
from clearhead.families.weights import expand
from clearhead.model.build import build
from clearhead.model.transformer import Transformer
from clearhead.nn.linear import Linear
from clearhead.training.addresses import matching
from clearhead.training.checkpoint import replacing
from clearhead.training.config import LoraConfig

NAME = "default"
"""What peft calls an adapter that nobody named."""
ADAPTER = re.compile(r"\.lora_(A|B)\.")


def add_lora(model: Transformer, config: LoraConfig) -> None:
    """Put adapters beside the projections that `config` names, which alone take a gradient from then on.

    The second matrix of each begins as zeros, so the model computes what it did.

    Raises:
        ClearheadError: peft is not installed, or the addresses name no projection that can have one.
    """
    peft: Any = _peft()
    targets = projections(model, config.targets)
    # peft compares a list by the ends of names, and an expression with all of them.
    said = _said(peft, config, "|".join(map(re.escape, targets)))
    training = model.training
    peft.inject_adapter_in_model(said, model)
    model.train(training)


def projections(model: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """The projections at these addresses.

    Raises:
        ClearheadError: one names none, or one whose weights are read by hand, so that an adapter would do nothing.
    """
    linears = {name: module for name, module in model.named_modules() if isinstance(module, Linear)}
    found = matching(linears, patterns, "model.lora.targets", "projection")
    for name in found:
        owner, _, leaf = name.rpartition(".")
        if leaf in getattr(model.get_submodule(owner), "read_by_hand", ()):
            raise ClearheadError(
                f"model.lora.targets names {name}, whose weights enter a formula of their own, where an adapter has no "
                "place; leave it out"
            )
    return found


def adapted(model: nn.Module) -> bool:
    """Whether a model has adapters."""
    return any(ADAPTER.search(name) for name, _ in model.named_parameters())


def merged(model: Transformer) -> Transformer:
    """The same function without adapters: each is added to its projection (section 4.1), all else is shared with
    `model`, which stays as it is. A model without adapters is given back itself.
    """
    if not adapted(model):
        return model
    with torch.device("meta"):
        plain: Transformer = build(model.config)
    for path, module in plain.named_modules():
        old: Any = model.get_submodule(path)
        base = old.get_base_layer() if hasattr(old, "get_base_layer") else old
        for leaf, _ in list(module.named_parameters(recurse=False)):
            kept = base.get_parameter(leaf)
            if base is not old and leaf == "weight":
                with torch.no_grad():
                    kept = nn.Parameter(kept + old.get_delta_weight(NAME), requires_grad=False)
            setattr(module, leaf, kept)
    plain.tokenizer, plain.origin = model.tokenizer, model.origin
    return plain.train(model.training)


def write_adapter(model: Transformer, config: LoraConfig, folder: Path) -> bool:
    """Write the adapters alone as peft does, by the published names of the projections, for models of `transformers`.

    False where the published class keeps a projection in another form than here: nothing is written then.
    """
    peft: Any = _peft()
    origin, plain = model.origin, merged(model)
    shapes = {name: tuple(p.shape) for name, p in plain.named_parameters()}
    published = {
        match.parameters[0]: match.files[0]
        for match in expand(origin.family.weights.writing(model.config), shapes, model.config)
        if isinstance(match.op, Same)
    }
    adapters = {name: module for name, module in model.named_modules() if hasattr(module, "get_base_layer")}
    if not all(f"{name}.weight" in published for name in adapters):
        return False
    called = {name: published[f"{name}.weight"].removesuffix(".weight") for name in adapters}
    tensors = {
        f"base_model.model.{called[name]}.{part}.weight": getattr(module, part)[NAME].weight.detach().contiguous()
        for name, module in adapters.items()
        for part in ("lora_A", "lora_B")
    }
    said = _said(peft, config, sorted(called.values()))
    said.base_model_name_or_path, said.inference_mode = origin.where, True
    with replacing(folder) as temporary:
        temporary.mkdir()
        said.save_pretrained(str(temporary))
        save_file(tensors, temporary / "adapter_model.safetensors")
    return True


def _said(peft: Any, config: LoraConfig, targets: str | list[str]) -> Any:
    return peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=targets)


def _peft() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import peft
    except ImportError as problem:
        raise ClearheadError(
            f'LoRA is the work of peft, which can\'t be imported ({problem}). Run: pip install "clearhead[train]"'
        ) from problem
    return peft
