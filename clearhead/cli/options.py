"""Options that several verbs share, and how a verb's flags are parsed. Imports tyro, never torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, Union

import tyro
from tyro.conf import Positional

T = TypeVar("T")

# `int | None` and `tuple[str, ...]` would do, but they make tyro import typeguard: 70 ms of every --help.
OptionalInt = Annotated[Union[int, None], tyro.conf.arg(metavar="INT")]  # noqa: UP007
OptionalText = Annotated[Union[str, None], tyro.conf.arg(metavar="TEXT")]  # noqa: UP007
Dtype = Annotated[
    Union[Literal["float32", "bfloat16", "float16"], None],  # noqa: UP007
    tyro.conf.arg(metavar="float32|bfloat16|float16"),
]
if TYPE_CHECKING:
    Texts = tuple[str, ...]
else:
    Texts = Annotated[tuple, tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TEXT")]
Source = Annotated[Positional[str], tyro.conf.arg(metavar="SOURCE")]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How each next token is chosen."""

    temperature: float = 0.0
    """0 takes the likeliest token; 1 draws from the model's own distribution; more is wilder."""
    top_k: int = 0
    """Draw from the k likeliest tokens only; 0 is off."""
    top_p: float = 1.0
    """Draw from the fewest tokens whose probabilities reach p; 1 is off."""
    min_p: float = 0.0
    """Drop tokens less likely than p times the likeliest; 0 is off."""
    repetition_penalty: float = 1.0
    """Divide the scores of tokens that the text already has; 1 is off."""
    presence_penalty: float = 0.0
    """Take this off the score of every token already written, once; 0 is off."""
    frequency_penalty: float = 0.0
    """Take this off the score of every token already written, once a time; 0 is off."""
    seed: OptionalInt = None
    """The same seed gives the same text."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """When the text ends, if the model does not end it itself."""

    max_new_tokens: int = 128
    """The most tokens to write."""
    stop: Texts = ()
    """End before this text; may be given several times."""


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How the weights are held."""

    dtype: Dtype = None
    """What the weights are turned into; as the checkpoint has them when not given."""
    device: str = "cpu"
    """Where the model runs, as torch names it."""


def parse(options: type[T], prog: str, about: str, args: Sequence[str]) -> T:
    """The options that `args` give. A wrong flag ends the program with exit code 2, and --help with 0."""
    return tyro.cli(
        options,
        prog=prog,
        description=about[0].upper() + about[1:] + ".",
        args=args,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
