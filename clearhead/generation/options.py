"""What a caller may ask of `generate` and `stream`: flat keywords, checked and gathered into small records.

An option marked "a row" takes one value for all prompts, or a list with one for each.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

import torch
from torch import Tensor

from clearhead.config import record
from clearhead.errors import UsageError
from clearhead.generation.rules import Rules
from clearhead.ops.beam import EarlyStopping
from clearhead.taps import Taps

if TYPE_CHECKING:
    from clearhead.generation.kept import Kept
    from clearhead.generation.prefix import Prefix
    from clearhead.model.transformer import Transformer

Overflow = Literal["refuse", "cut_left"]


class Options(TypedDict, total=False):
    """The keywords of `generate` and `stream`. All may be left out."""

    max_new_tokens: int | Sequence[int]
    """At most so many new tokens, a row; 64. The end is then "length"."""
    max_text: int | None
    """At most so many characters of new text. The end is then "budget"."""
    stop: str | Sequence[str]
    """Texts that end the answer and are not part of it, however the tokens cut them. The end is then "stop"."""
    stop_tokens: Sequence[int] | None
    """Token ids that end the answer. None: the model's own, `end_tokens(model)`. A list replaces those; () is none."""
    overflow: Overflow
    """A prompt longer than the model's window is an error ("refuse"), or loses its oldest tokens ("cut_left")."""

    temperature: float | Sequence[float]
    """0 takes the best token, 1 draws from the model's own distribution; a row. Unset, it is 1 when top_k, top_p,
    min_p or seed is given, else 0."""
    top_k: int | Sequence[int]
    """Draw among the best k tokens, a row; 0 is off."""
    top_p: float | Sequence[float]
    """Draw among the best tokens that together have this probability, a row; 1 is off."""
    min_p: float | Sequence[float]
    """Draw among tokens at least this much as likely as the best one, a row; 0 is off."""
    seed: int | Sequence[int] | None
    """The same seed gives the same text, a row. Distinct prompts of a batch get what each gets alone; a prompt that
    stands in it several times with one seed gets a different text each time. None: another text every time."""
    repetition_penalty: float | Sequence[float]
    """Above 1, tokens already in prompt or answer are less likely (CTRL), a row; 1 is off."""
    presence_penalty: float | Sequence[float]
    """Taken off the score of every token already in the answer (OpenAI), a row; 0 is off."""
    frequency_penalty: float | Sequence[float]
    """Taken off a token's score for each time it is in the answer (OpenAI), a row; 0 is off."""
    logit_bias: Mapping[int, float]
    """Added to the scores of these token ids; minus infinity forbids one."""

    n_beams: int
    """Beam search: follow the best so many texts at once, and answer with the best of those that ended; 1 is off."""
    length_penalty: float
    """Of a beam search: a text is worth the sum of its log-probabilities over (new tokens) ** length_penalty. The
    prompt does not count, the token that ends the text does. Above 0 favours long texts, and 0 none; 1."""
    early_stopping: EarlyStopping
    """Of a beam search: when n_beams texts have ended, True stops; False (the usual) stops once the best that goes on
    is, at its present length, worth less than the worst of them, which is a guess where long texts are favoured;
    "never" stops when no text that goes on can become worth more."""
    n_best: int
    """Of a beam search: give the best so many answers, in `Result.beams`; 1."""
    follow_config: bool
    """Heed what the checkpoint's generation config forbids and forces (bad words, suppressed tokens, a forced first or
    last token, runs not to be repeated); True."""
    decoder_prompt: str | Sequence[int] | None
    """Of a model with an encoder: what the decoder's text begins with, in place of the model's own beginning. Whisper's
    says language and task; special tokens may be written as text."""

    logprobs: bool
    """Report the log-probability of each new token under the model itself, before any setting above."""
    top_logprobs: int
    """Report also the so many likeliest tokens at each place."""
    present: Tensor | None
    """For a prompt that is a tensor: True where there is a token, False where there is padding, on any side."""
    state: Kept | None
    """Continue a kept text: the `state` of a result made with keep=True. The prompt is what follows, or empty."""
    keep: bool
    """Keep the model's memory in `Result.state`, to continue from."""
    prefix: Prefix | None
    """What the model remembers of a text that prompts begin with, from `read_prefix` or `load_prefix`: they read only
    the rest, and get the answers they get without it. One that begins otherwise is read whole, and so is every one
    where somebody looks inside (`taps`)."""
    prefill_chunk: int
    """Read the prompt in pieces of so many tokens; 512. It bounds memory and changes no number."""
    backend: str
    """The attention kernel; "auto"."""
    shortlist: bool
    """Choose from a shortlist, which a copy of the head in four bits proves to be enough: the same tokens, sooner where
    the head is most of the model (see clearhead.generation.shortlist); False. Where all scores are needed it is not
    used."""
    lookup: bool
    """Read ahead: what followed the last words where they stood before in the text is read along with the next token,
    and what the model would have written itself is kept. The same text, in fewer passes; for one prompt; False."""
    draft: Transformer | None
    """Read ahead what this smaller model of the same tokenizer writes on. Greedy texts are the same, drawn ones come
    with the same probabilities; for one prompt."""
    n_ahead: int
    """Read at most so many tokens ahead; 8."""
    taps: Taps | None
    """Who looks inside every pass, or changes what is there (see clearhead.taps, and `look_generating` of
    clearhead.lens)."""


@record
class SamplingConfig:
    """How one row's tokens are drawn; see `Options`."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@record
class PenaltyConfig:
    """What is added to or taken from one row's scores first; see `Options`."""

    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    bias: Mapping[int, float] | None = None

    @property
    def counts(self) -> bool:
        """Whether tokens have to be counted."""
        return self.repetition != 1 or self.presence != 0 or self.frequency != 0


@record
class Limits:
    """What ends one row; see `Options`."""

    max_new_tokens: int = 64
    max_text: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] | None = None
    overflow: Overflow = "refuse"


@record
class BeamConfig:
    """How beam search goes; see `Options`."""

    n_beams: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    n_best: int = 1


@record
class RowConfig:
    """All that holds for one row."""

    sampling: SamplingConfig = SamplingConfig()
    penalties: PenaltyConfig = PenaltyConfig()
    limits: Limits = Limits()
    rules: Rules = Rules()

    @property
    def forbids(self) -> bool:
        """Whether anything but the model's own scores can rule a token out."""
        return self.penalties.bias is not None or self.rules != Rules()


@dataclass(frozen=True, kw_only=True, eq=False)
class RunConfig:
    """All that holds for the whole call; see `Options`."""

    logprobs: bool = False
    top_logprobs: int = 0
    present: Tensor | None = None
    state: Kept | None = None
    keep: bool = False
    prefill_chunk: int = 512
    backend: str = "auto"
    taps: Taps | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Faster:
    """Ways to the same tokens that take less time; see `Options`."""

    shortlist: bool = False
    lookup: bool = False
    draft: Transformer | None = None
    n_ahead: int = 8

    @property
    def ahead(self) -> bool:
        """Whether tokens are read ahead."""
        return self.lookup or self.draft is not None


def check_names(options: Mapping[str, Any]) -> None:
    """Refuse an option there is not, naming the nearest one."""
    known = list(Options.__annotations__)
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else "there are " + ", ".join(known)
            raise UsageError(f"generate has no option {name}; {hint}")


def check(options: Mapping[str, Any]) -> None:
    """Refuse what is wrong whatever the model and the prompt.

    Raises:
        UsageError: an option there is not, or a value out of range.
    """
    check_names(options)
    given = cast(Options, options)
    read_run(given)
    read_faster(given)
    read_beams(given)
    read_rows(given, 1)


def read_run(options: Options) -> RunConfig:
    """The options of the whole call."""
    run = RunConfig(**{name: options[name] for name in RunConfig.__annotations__ if name in options})  # type: ignore[literal-required]
    if not isinstance(run.top_logprobs, int) or run.top_logprobs < 0:
        raise UsageError(f"top_logprobs is {run.top_logprobs}; it must be 0 or more")
    if not isinstance(run.prefill_chunk, int) or run.prefill_chunk < 1:
        raise UsageError(f"prefill_chunk is {run.prefill_chunk}; it must be 1 or more")
    return run


def read_faster(options: Options) -> Faster:
    """The options of the ways to the same tokens."""
    faster = Faster(**{name: options[name] for name in Faster.__annotations__ if name in options})  # type: ignore[literal-required]
    if not isinstance(faster.n_ahead, int) or isinstance(faster.n_ahead, bool) or faster.n_ahead < 1:
        raise UsageError(f"n_ahead is {faster.n_ahead!r}; it must be a whole number of 1 or more")
    if "n_ahead" in options and not faster.ahead:
        raise UsageError("n_ahead says how far lookup or draft read ahead; give one of them, or leave n_ahead")
    if faster.lookup and faster.draft is not None:
        raise UsageError("lookup and draft both say what to read ahead; leave one of them")
    if faster.ahead:
        for name, why in (("n_beams", "follows several texts"), ("taps", "looks at every pass as it would be")):
            if options.get(name) not in (None, 1):
                raise UsageError(f"{name} {why}, and {'lookup' if faster.lookup else 'draft'} reads ahead; leave one")
    return faster


def read_beams(options: Options) -> BeamConfig | None:
    """The options of a beam search; None where none is asked for."""
    n_beams, n_best = options.get("n_beams", 1), options.get("n_best", 1)
    if not isinstance(n_beams, int) or isinstance(n_beams, bool) or n_beams < 1:
        raise UsageError(f"n_beams is {n_beams!r}; it must be a whole number of 1 or more")
    for name in ("length_penalty", "early_stopping", "n_best"):
        if n_beams == 1 and name in options:
            raise UsageError(f"{name} is an option of beam search; say how many beams (n_beams, 2 or more)")
    if n_beams == 1:
        return None
    for name, off in (("temperature", 0), ("top_k", 0), ("top_p", 1), ("min_p", 0), ("seed", None)):
        if options.get(name) not in (None, off):
            raise UsageError(f"{name} is an option of drawing, and beam search draws nothing; leave {name} or n_beams")
    if not isinstance(n_best, int) or isinstance(n_best, bool) or not 1 <= n_best <= n_beams:
        raise UsageError(f"n_best is {n_best!r}; of {n_beams} beams, 1 to {n_beams} answers can be given")
    (penalty,) = _per_row(options, "length_penalty", 1, 1.0)
    early = options.get("early_stopping", False)
    if not isinstance(early, bool) and early != "never":
        raise UsageError(f'early_stopping is {early!r}; it must be True, False or "never"')
    if options.get("keep"):
        raise UsageError("keep goes with one text at a time; leave keep or n_beams")
    return BeamConfig(n_beams=n_beams, length_penalty=penalty, early_stopping=early, n_best=n_best)


def read_rows(options: Options, n_rows: int, rules: Rules | None = None) -> list[RowConfig]:
    """The options of each of `n_rows` rows, checked; `rules` hold for all."""
    sampled = any(options.get(name) is not None for name in ("top_k", "top_p", "min_p", "seed"))
    temperature = _per_row(options, "temperature", n_rows, 1.0 if sampled else 0.0, least=0.0)
    top_k = _per_row(options, "top_k", n_rows, 0, least=0, whole=True)
    top_p = _per_row(options, "top_p", n_rows, 1.0, least=0.0, most=1.0)
    min_p = _per_row(options, "min_p", n_rows, 0.0, least=0.0, most=1.0)
    seed = _seeds(options, n_rows)
    repetition = _per_row(options, "repetition_penalty", n_rows, 1.0, least=1e-3)
    presence = _per_row(options, "presence_penalty", n_rows, 0.0)
    frequency = _per_row(options, "frequency_penalty", n_rows, 0.0)
    max_new = _per_row(options, "max_new_tokens", n_rows, 64, least=0, whole=True)
    shared = _shared_limits(options)
    bias = options.get("logit_bias") or None
    if bias is not None and any(math.isnan(value) for value in bias.values()):
        raise UsageError("logit_bias holds a value that is not a number")
    return [
        RowConfig(
            sampling=SamplingConfig(
                temperature=temperature[i], top_k=int(top_k[i]), top_p=top_p[i], min_p=min_p[i], seed=seed[i]
            ),
            penalties=PenaltyConfig(repetition=repetition[i], presence=presence[i], frequency=frequency[i], bias=bias),
            limits=Limits(max_new_tokens=int(max_new[i]), **shared),
            rules=rules or Rules(),
        )
        for i in range(n_rows)
    ]


def _shared_limits(options: Options) -> dict[str, Any]:
    stop = options.get("stop") or ()
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in stop):
        raise UsageError(f"stop is {stop!r}; each stop must be a text of at least one character")
    max_text = options.get("max_text")
    if max_text is not None and max_text < 1:
        raise UsageError(f"max_text is {max_text}; it must be 1 or more characters")
    ids = options.get("stop_tokens")
    if ids is not None and not all(isinstance(i, int) and i >= 0 for i in ids):
        raise UsageError(f"stop_tokens is {ids!r}; it must be a list of token ids")
    overflow = options.get("overflow", "refuse")
    if overflow not in ("refuse", "cut_left"):
        raise UsageError(f'overflow is {overflow!r}; it must be "refuse" or "cut_left"')
    return {
        "max_text": max_text,
        "stop": stop,
        "stop_tokens": None if ids is None else tuple(ids),
        "overflow": overflow,
    }


def _seeds(options: Options, n_rows: int) -> list[int]:
    """A seed a row. Without one, each row gets its own from torch's generator, so `torch.manual_seed` still rules."""
    if options.get("seed") is None:
        return cast("list[int]", torch.randint(2**62, (n_rows,)).tolist())
    return [int(seed) for seed in _per_row(options, "seed", n_rows, 0, whole=True)]


def _per_row(
    options: Options,
    name: str,
    n_rows: int,
    default: float,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    whole: bool = False,
) -> list[Any]:
    """One checked number a row."""
    given: Any = options.get(name)
    if given is None:
        given = default
    values = list(given) if isinstance(given, (list, tuple)) else [given] * n_rows
    if len(values) != n_rows:
        raise UsageError(f"{name} has {len(values)} values for {n_rows} prompts: give one for all, or one for each")
    for value in values:
        is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            limits = (
                ""
                if least == -math.inf
                else f" of at least {least:g}" + (f" and at most {most:g}" if most < math.inf else "")
            )
            raise UsageError(f"{name} is {value!r}; it must be {kind}{limits}")
    return values
