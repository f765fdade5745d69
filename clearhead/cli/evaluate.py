"""`clearhead evaluate SOURCE [FILE...]`: how well a model does on data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from clearhead.cli.options import Loading, OptionalInt, OptionalText, Source
from clearhead.errors import UsageError
from clearhead.progress import progress_bar

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.training.measures.texts import TextScores

    Files = tuple[str, ...]
else:
    # Of a plain tuple, the words are texts (see cli.options).
    Files = Annotated[Positional[tuple], arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What of files is read, and how."""

    columns: OptionalText = None
    """The columns of the files: one of texts, or a source and a target with a comma between: --columns en,de."""
    label: OptionalText = None
    """The column that says what a text is."""
    window: OptionalInt = None
    """How many tokens of a text are read at a time; the length the model was made for when not given."""
    stride: OptionalInt = None
    """How far windows move on: every token but a text's first has at least window - stride before it. Half of the
    window when not given."""


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    files: Files = ()
    """Text files, each a text by itself; or tables (.tsv, .csv, .jsonl, .parquet), with --columns or --label; or with
    --tasks, folders that define more of them. Without any, what was held out when the model was trained, for a
    checkpoint of `clearhead train`."""
    reading: Reading
    n_beams: int = 1
    """Of pairs: look for the best target among so many; 1 takes the likeliest token each time."""
    tasks: OptionalText = None
    """Tasks of the lm-eval harness, with commas between; it is installed with the extra lm-eval."""
    loading: Loading
    json: bool = False
    """Print the numbers as JSON, with those of every file."""


def run(options: Options) -> None:
    reading = options.reading
    columns = tuple(name.strip() for name in (reading.columns or "").split(",") if name.strip())
    tasks = [name.strip() for name in (options.tasks or "").split(",") if name.strip()]
    if tasks and (reading != Reading() or options.n_beams != 1):
        raise UsageError("--tasks say themselves what is asked; leave the flags that are for files")
    if not options.files and (columns or reading.label is not None):
        raise UsageError("--columns and --label are of files; name some after the model")
    if options.n_beams < 1:
        raise UsageError(f"--n-beams is {options.n_beams}; it must be 1 or more")
    from clearhead.cli import console

    model = console.load(options.source, options.loading)
    if tasks:
        from clearhead.training.harness import run_tasks

        found: Any = run_tasks(model, tasks, options.files)
    else:
        found = _measure(model, options, columns)
    if hasattr(found, "perplexity"):
        _tell_texts(found, options.json)
        return
    numbers = found if isinstance(found, dict) else found.summary()
    if options.json:
        console.print_json(numbers)
        return
    lines = [
        (f"{name.replace('_', ' ')} {part}".rstrip(), one)
        for name, value in numbers.items()
        for part, one in (value.items() if isinstance(value, dict) else [("", value)])
    ]
    width = max(len(name) for name, _ in lines) + 2
    for name, value in lines:
        print(name.ljust(width) + (f"{value:.4f}" if isinstance(value, float) else f"{value}"))


def _measure(model: Transformer, options: Options, columns: tuple[str, ...]) -> Any:
    from clearhead.training.evaluate import evaluate, evaluate_run

    how: dict[str, Any] = {"window": options.reading.window, "stride": options.reading.stride}
    with progress_bar("evaluating", 1) as told:
        if not options.files:
            return evaluate_run(model, options.source, **how, progress=told)
        asked: dict[str, Any] = {"columns": columns, "label": options.reading.label, "n_beams": options.n_beams}
        return evaluate(model, options.files, **asked, **how, progress=told)


def _tell_texts(found: TextScores, as_json: bool) -> None:
    if as_json:
        from clearhead.cli import console

        listed = [
            {"name": f.name, "n_bytes": f.n_bytes, "n_tokens": f.n_tokens, "bits_per_byte": f.bits_per_byte}
            for f in found.files
        ]
        console.print_json({**found.summary(), "files": listed})
        return
    print(f"perplexity     {found.perplexity:.4f}")
    print(f"bits per byte  {found.bits_per_byte:.4f}")
    print(f"accuracy       {found.accuracy:.4f}")
    print(
        f"of {found.n_tokens:,} tokens, {found.n_bytes:,} bytes in {len(found.files):,} texts, by windows of "
        f"{found.window:,} tokens that move on by {found.stride:,}"
    )
