"""The command line: a table of verbs, and what every verb has in common. Nothing heavy is imported here.

A verb is a module of this package with `Options` (a dataclass, one field a flag) and `run(options) -> int | None`.
It is imported when it is called for; torch is imported when its work starts.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from clearhead import __version__
from clearhead.errors import ClearheadError, UsageError

VERBS = {
    "generate": "continue a text",
    "chat": "hold a conversation with a model that was made for it",
    "look": "show where a model looks, and what it thinks comes next",
    "heads": "say what each attention head does, and how sure that is",
    "prune": "write a model without the attention heads that matter least",
    "inspect": "list a model's parts, sizes, positions, masks and memory, without loading its weights",
    "embed": "turn every line of a file into a vector, and find the lines nearest to a text",
    "convert": "write a model as a folder in the Hub's layout",
    "cost": "work out what a model takes to hold, run, train and serve, from its config alone",
    "bench": "measure what this machine gives for a model, and what it waits for",
    "train": "train a model by a recipe: from nothing, or on from a checkpoint",
    "evaluate": "measure a model on texts, pairs, labels or tasks, or on what its run held out",
    "claim": "measure what the lesson and the papers say, and whether it holds",
    "studio": "open the lesson and the explorer of models in a browser, on this machine alone",
    "families": "list the published architectures that can be loaded",
}

SOURCES = """\
SOURCE is a folder in the Hub's layout, a .gguf file, a model's name on the Hub, or a model
that an installed package ships, such as gemma3-270m."""


def help_text() -> str:
    """What `clearhead --help` prints."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {about}" for name, about in VERBS.items())
    return (
        "The Transformer, whole and in plain sight.\n\n"
        f"usage: clearhead VERB ...\n\n{verbs}\n\n{SOURCES}\n"
        "`clearhead VERB --help` lists what a verb takes; `clearhead --version` prints the version.\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 an error, 2 a wrong call, 130 stopped by Ctrl-C."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(args)
    except ClearheadError as error:
        _complain(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has gone (`| head`). What is still buffered would fail again at exit, so it goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 1


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    verb, rest = args[0], args[1:]
    if verb == "--version":
        print(f"clearhead {__version__}")
        return 0
    if verb not in VERBS:
        raise UsageError(f"there is no verb {verb!r}{_nearest(verb)}; `clearhead --help` lists them")
    module = importlib.import_module(f"clearhead.cli.{verb}")
    from clearhead.cli.options import parse

    code = module.run(parse(module.Options, f"clearhead {verb}", VERBS[verb], rest))
    sys.stdout.flush()
    return code or 0


def _nearest(verb: str) -> str:
    import difflib

    near = difflib.get_close_matches(verb, VERBS, n=3, cutoff=0.5) or [v for v in VERBS if v.startswith(verb[:1])]
    return f"; perhaps {' or '.join(near)}" if near else ""


def _complain(text: str) -> None:
    sys.stdout.flush()
    print(f"clearhead: error: {text}", file=sys.stderr)
