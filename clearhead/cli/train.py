"""`clearhead train RECIPE`: a model from nothing, by a recipe; or on from where a run was stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import Positional, arg

from clearhead.cli.options import OptionalText
from clearhead.training.recipes import listed

if TYPE_CHECKING:
    Settings = tuple[str, ...]
else:
    Settings = Annotated[tuple, tyro.conf.UseAppendAction, arg(name="set", metavar="PATH=VALUE")]


@dataclass(frozen=True, kw_only=True)
class Options:
    recipe: Annotated[
        Positional[str], arg(metavar="RECIPE", help=f"What is trained: {listed()}.", help_behavior_hint="")
    ]
    settings: Settings = ()
    """Change a field of the recipe, as in --set optim.lr=1e-3; may be given several times."""
    show: bool = False
    """Print every field of the recipe, and train nothing."""
    out: OptionalText = None
    """The folder for checkpoints, metrics and the report; runs/RECIPE when not given."""
    resume: bool = False
    """Go on from the newest checkpoint in that folder; where there is none, begin."""
    json: bool = False
    """Print the report, or with --show the fields, as JSON; and nothing of the run on standard error."""


def run(options: Options) -> int | None:
    from clearhead.cli import console

    if options.show:
        from clearhead.training.recipes import recipe
        from clearhead.training.settings import change, plain, show

        config = change(recipe(options.recipe), options.settings)
        if options.json:
            console.print_json(plain(config))
        else:
            print(show(config))
        return None
    with console.busy("starting"):
        console.import_torch()
        from clearhead.training.run import train
        from clearhead.training.scale.processes import first_of_all

    done = train(options.recipe, settings=options.settings, out=options.out, resume=options.resume, quiet=options.json)
    if not first_of_all():
        pass  # one of several processes tells
    elif options.json:
        about = {"steps": done.steps, "checkpoint": str(done.checkpoint) if done.checkpoint else None}
        console.print_json({**about, "stopped_by": done.stopped_by, **(done.report or {})})
    elif done.checkpoint is not None and done.stopped_by is None:
        print(done.checkpoint)
    return None if done.stopped_by is None else 128 + done.stopped_by
