"""Options that several verbs share, and how a verb's flags are parsed. Imports tyro, never torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union

import tyro
from tyro.conf import Positional, arg

from clearhead.errors import UsageError

T = TypeVar("T")

# `int | None` and `tuple[str, ...]` would do, but they make tyro import typeguard: 70 ms of every --help.
# None is "not given": the library's own default holds, which the help text names.
OptionalInt = Annotated[Union[int, None], arg(metavar="INT", help_behavior_hint="")]  # noqa: UP007
OptionalFloat = Annotated[Union[float, None], arg(metavar="FLOAT", help_behavior_hint="")]  # noqa: UP007
OptionalText = Annotated[Union[str, None], arg(metavar="TEXT", help_behavior_hint="")]  # noqa: UP007
Dtype = Annotated[
    Union[Literal["float32", "bfloat16", "float16"], None],  # noqa: UP007
    arg(metavar="float32|bfloat16|float16", help_behavior_hint=""),
]
EarlyStopping = Annotated[
    Union[Literal["true", "false", "never"], None],  # noqa: UP007
    arg(metavar="true|false|never", help_behavior_hint=""),
]
if TYPE_CHECKING:
    Texts = tuple[str, ...]
else:
    Texts = Annotated[tuple, tyro.conf.UseAppendAction, arg(metavar="TEXT")]
Source = Annotated[Positional[str], arg(metavar="SOURCE", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How each next token is chosen."""

    temperature: OptionalFloat = None
    """0 takes the likeliest token, 1 draws from the model's own distribution, more is wilder. Unset, it is 0, or 1
    when --top-k, --top-p, --min-p or --seed is given."""
    top_k: OptionalInt = None
    """Draw among the k likeliest tokens; 0 is off."""
    top_p: OptionalFloat = None
    """Draw among the fewest tokens whose probabilities reach p; 1 is off."""
    min_p: OptionalFloat = None
    """Draw among tokens at least p times as likely as the likeliest; 0 is off."""
    repetition_penalty: OptionalFloat = None
    """Above 1, tokens already in the text are less likely; 1 is off."""
    presence_penalty: OptionalFloat = None
    """Taken off the score of every token already written; 0 is off."""
    frequency_penalty: OptionalFloat = None
    """Taken off a token's score each time it was written; 0 is off."""
    seed: OptionalInt = None
    """The same seed gives the same text."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """When the text ends, if the model does not end it itself."""

    max_new_tokens: int = 128
    """The most tokens to write."""
    max_text: OptionalInt = None
    """The most characters to write."""
    stop: Texts = ()
    """End before this text; may be given several times."""
    overflow: Literal["refuse", "cut_left"] = "refuse"
    """What to do with a prompt beyond the model's window: refuse it, or cut off its beginning."""


@dataclass(frozen=True, kw_only=True)
class Beams:
    """Beam search: several texts are followed at once, and the best of those that ended is the answer."""

    n_beams: OptionalInt = None
    """How many texts are followed; 1 is off."""
    length_penalty: OptionalFloat = None
    """The log-probabilities of a text are divided by its length to this power; above 0 favours long texts, and 1 is
    what holds when it is not given."""
    early_stopping: EarlyStopping = None
    """Stop when so many texts have ended (true), when the best that goes on falls behind them as it is now (false), or
    when none that goes on can become better (never). Unset, it is false."""


@dataclass(frozen=True, kw_only=True)
class Faster:
    """Ways to the same text that may take less time: the more tokens, and the larger the model, the more."""

    shortlist: bool = False
    """Have a copy of the head in four bits rule out most tokens, so that only the rest is scored. For models whose
    vocabulary is most of their size."""
    lookup: bool = False
    """Read ahead what followed the last words where they stood before: for texts that repeat the prompt."""
    draft: OptionalText = None
    """Read ahead what this smaller model of the same tokenizer writes: a folder, a file or a name, as SOURCE."""
    n_ahead: OptionalInt = None
    """Read at most so many tokens ahead; 8."""


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How the weights are held."""

    dtype: Dtype = None
    """What the weights are turned into; as the file has them when not given."""
    weights: Annotated[
        Union[Literal["plain", "stored", "int8", "int4"], None],  # noqa: UP007
        arg(metavar="plain|stored|int8|int4", help_behavior_hint=""),
    ] = None
    """How matrices are kept: as plain numbers, in the blocks of a quantised GGUF file (what generate and chat do with
    such a file), or made into blocks of 8.5 or 4.5 bits a weight. In blocks they are faster to write with, and can't
    be changed."""
    device: str = "cpu"
    """Where the model runs, as torch names it."""
    rope: OptionalText = None
    """Stretch rotary positions for a longer text: yarn:4 (or linear:4, dynamic:4), yarn:4:8192 where the model was
    trained on 8,192 tokens, or JSON as in a config's rope_scaling."""


def rope_scaling(text: str) -> dict[str, Any]:
    """The scaling that KIND:FACTOR, KIND:FACTOR:TRAINED or a JSON object asks for, in the words of configs."""
    if text.lstrip().startswith("{"):
        try:
            parsed: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise UsageError(f"--rope: not JSON ({error})") from None
        return parsed
    kind, *numbers = text.split(":")
    try:
        scaling: dict[str, Any] = {"rope_type": kind, "factor": float(numbers[0])}
        if numbers[1:]:
            (trained,) = numbers[1:]
            scaling["original_max_position_embeddings"] = int(trained)
    except (ValueError, IndexError):
        raise UsageError(f"--rope is {text!r}; give KIND:FACTOR, as in yarn:4, or a JSON object") from None
    return scaling


def given(*options: Sampling | Ending | Beams | Faster) -> dict[str, Any]:
    """What the person asked for, as keywords of `generate` and `stream`."""
    words = {"true": True, "false": False}
    unset = (None, False)
    asked = {
        name: value
        for part in options
        for name, value in asdict(part).items()
        if not any(value is nothing for nothing in unset)
    }
    return {name: words.get(value, value) if name == "early_stopping" else value for name, value in asked.items()}


def parse(options: type[T], prog: str, about: str, args: Sequence[str]) -> T:
    """The options that `args` give. A wrong flag ends the program with exit code 2, and --help with 0."""
    return tyro.cli(
        options,
        prog=prog,
        description=about[0].upper() + about[1:] + ".",
        args=args,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
