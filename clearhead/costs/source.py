"""From what a user names to a config: without weights wherever a config is all there is."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearhead.checkpoints.hub import hub_config, is_hub_id
from clearhead.checkpoints.load import blueprint
from clearhead.checkpoints.shipped import is_shipped, shipped_names
from clearhead.checkpoints.source import open_checkpoint
from clearhead.config import TransformerConfig, TwoTowersConfig
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES, family_of
from clearhead.families.rope import scaling_from
from clearhead.model.rope import with_rope

Config = TransformerConfig | TwoTowersConfig
CONFIGS = files("clearhead").joinpath("assets", "configs")


@dataclass(frozen=True)
class Named:
    """A config, and what it is called."""

    name: str
    config: Config


def config_names() -> list[str]:
    """The published models whose configs are shipped."""
    return sorted(entry.name.removesuffix(".json") for entry in CONFIGS.iterdir() if entry.name.endswith(".json"))


def read_config(source: Any, rope: Mapping[str, Any] | None = None) -> Named:
    """The config of a model; of a config itself; or of a folder, a config.json, a .gguf file, a shipped config
    ("llama3-70b"), a shipped model, a family (as published by default) or a Hub id. No weights are read.

    rope: another scaling of rotary positions, in the words of published configs.

    Raises:
        ClearheadError: nothing has that name (the message has the nearest), or its config is not understood.
    """
    if not isinstance(source, str | Path):
        config = source if isinstance(source, TransformerConfig | TwoTowersConfig) else getattr(source, "config", None)
        if not isinstance(config, TransformerConfig | TwoTowersConfig):
            raise ClearheadError(f"a {type(source).__name__} has no config; give a model, a config, or where one is")
        return Named("this model", config if rope is None else with_rope(config, scaling_from(rope, _trained(config))))
    text, path = str(source), Path(source).expanduser()
    if path.suffix == ".json" and path.exists():
        return _published(_json(path), text, str(path), rope)
    if path.is_dir() and not _has_weights(path):
        return _published(_json(path / "config.json"), text, str(path / "config.json"), rope)
    if not path.exists():
        if text in config_names():
            return _published(json.loads(CONFIGS.joinpath(f"{text}.json").read_text("utf-8")), text, text, rope)
        if text in FAMILIES and not is_shipped(text):
            return _published({"model_type": text}, text, text, rope)
        if not is_shipped(text):
            if not (is_hub_id(text) and "/" in text):
                raise ClearheadError(f"there is no model {text!r}: no file, folder, config or family{_nearest(text)}")
            if not text.endswith(".gguf"):
                found = hub_config(text)
                return _published(_json(found), text, str(found), rope)
    with open_checkpoint(source) as checkpoint:
        return Named(path.name if path.exists() else text, blueprint(checkpoint, rope=rope).model.config)


def _published(raw: Mapping[str, Any], name: str, where: str, rope: Mapping[str, Any] | None) -> Named:
    config: Config = family_of(raw, where).read(raw, where)
    if rope is not None:
        config = with_rope(config, scaling_from(rope, _trained(config), raw.get("original_max_position_embeddings")))
    return Named(name, config)


def _trained(config: Config) -> int | None:
    return config.context if isinstance(config, TransformerConfig) else None


def _has_weights(folder: Path) -> bool:
    return any(any(folder.glob(pattern)) for pattern in ("*.safetensors*", "*.bin*"))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ClearheadError(f"{path} can't be read: {problem.strerror or problem}") from None
    except ValueError as problem:
        raise ClearheadError(f"{path} is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise ClearheadError(f"{path} holds no JSON object, so it is no config")
    return found


def _nearest(name: str) -> str:
    known = [*config_names(), *shipped_names(), *FAMILIES]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    near = list(dict.fromkeys(near)) or [one for one in known if name and name in one][:3]
    return f". Did you mean {' or '.join(near)}?" if near else ". `clearhead families` lists the families"
