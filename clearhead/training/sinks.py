"""Where a run is told of beside its own files: TensorBoard, and Weights & Biases for those who use it."""

from __future__ import annotations

import importlib.util
import io
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from clearhead.training.showing import Shown


class Sink(Protocol):
    """Something that is told of a run."""

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step, by name."""
        ...

    def shown(self, step: int, shown: Shown) -> None:
        """What the model does with held-out data."""
        ...

    def close(self) -> None:
        """That was all."""
        ...


class TensorBoard:
    """Files for TensorBoard, in the run's folder."""

    def __init__(self, folder: Path, first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first + 1)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def shown(self, step: int, shown: Shown) -> None:
        # Markdown: four spaces in front keep lines as they are.
        self._writer.add_text("sample", "\n".join(f"    {line}" for line in shown.text.splitlines()), step)
        if shown.png:
            self._writer.add_image("attention", _pixels(shown.png), step, dataformats="HWC")

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run there, sent or kept on the disk as WANDB_MODE says; without a key it is kept, and nobody is asked for one.

    A run that goes on goes on there.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        wandb: Any = importlib.import_module("wandb")
        self._wandb = wandb
        mode = os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline")
        identity = folder / "wandb-run"
        if not identity.exists():
            identity.write_text(secrets.token_hex(4) + "\n", encoding="utf-8")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "clearhead"),
            name=folder.name,
            id=identity.read_text(encoding="utf-8").strip(),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            mode=mode,
            settings=wandb.Settings(silent=True, console="off"),
        )

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def shown(self, step: int, shown: Shown) -> None:
        values = {"sample": self._wandb.Html(f"<pre>{_escaped(shown.text)}</pre>")}
        if shown.png:
            values["attention"] = self._wandb.Image(_pixels(shown.png))
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


def sinks(folder: Path, first: int, config: Mapping[str, Any]) -> tuple[list[Sink], list[str]]:
    """Those of this machine, and in words what is not told where it was asked for. A run depends on none of them.

    first: so many steps were told before.
    """
    found: list[Sink] = []
    if installed("tensorboard"):
        found.append(TensorBoard(folder, first))
    if installed("wandb") and _wanted():
        try:
            found.append(WeightsAndBiases(folder, config))
        except Exception as problem:  # no network, no account, another version: none is a reason not to train
            return found, [f"Weights & Biases is not told: {str(problem).strip().splitlines()[0]}"]
    return found, []


def installed(name: str) -> bool:
    """Whether a package is there; a folder that happens to have its name is none."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def _wanted() -> bool:
    """Whether somebody set it up: by a variable of its own, or by having logged in."""
    if os.environ.get("WANDB_MODE") == "disabled":
        return False
    return bool(os.environ.get("WANDB_MODE") or os.environ.get("WANDB_PROJECT")) or _has_key()


def _has_key() -> bool:
    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        return bool(os.environ.get("WANDB_API_KEY")) or "wandb" in netrc.read_text(encoding="utf-8", errors="ignore")
    except OSError:
        return False


def _escaped(text: str) -> str:
    import html

    return html.escape(text)


def _pixels(png: bytes) -> Any:
    """A picture as an array (height, width, 3)."""
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
