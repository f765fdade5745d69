"""`clearhead bench SOURCE`: what this machine gives for a model, beside what memory and arithmetic allow, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from clearhead.cli.options import Loading, OptionalInt, Source
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from clearhead.generation.bench import Benched, Pace

BAR = 30
"""Characters of a pass."""
PIECES = {
    "memory": ("█", "blue"),
    "arithmetic": ("▓", "yellow"),
    "calls": ("▒", "magenta"),
    "rest": ("░", "bright_black"),
}
"""What a pass waits for, and how it is drawn."""
SAYS = {
    "memory": "bound by memory: {bytes} a pass take {memory} at {bandwidth}",
    "arithmetic": "bound by arithmetic: {flops} a pass take {arithmetic} at {peak}/s",
    "calls": "bound by overhead: the calls of small operations take {calls} a pass",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    prompt: OptionalInt = None
    """Tokens that are read at once; 512 when not given, 128 of an encoder, or as many as the model was made for."""
    new: int = 32
    """Tokens that are written to each text."""
    loading: Loading
    force: bool = False
    """Measure although others use the processors."""
    json: bool = False
    """Print every number as JSON: seconds, bytes, operations, tokens a second."""


def run(options: Options) -> None:
    if options.loading.device != "cpu":
        raise UsageError(
            f"--device is {options.loading.device}; what is measured here is this machine's processors. For an "
            "accelerator, `clearhead cost SOURCE --device NAME` works out what its memory and arithmetic allow"
        )
    from clearhead.cli import console

    with console.busy("starting"):
        console.import_torch()
        from clearhead.costs.busy import require_quiet
        from clearhead.generation import bench

        if not options.force:
            require_quiet()
    with _watched() as told:
        machine = bench.measure_machine(told)
        told(f"loading {options.source}")
        model, loaded = bench.measure_load(lambda: console.load(options.source, options.loading, {}), options.source)
        paces = bench.measure_paces(model, machine, prompt=options.prompt, new=options.new, told=told)
        found = bench.Benched(options.source, bench.kind_of(model), machine, loaded, paces)
    if options.json:
        console.print_json(_told(found))
        return
    _print(found)


def _watched() -> Any:
    """A spinner that says what is measured, when a person is watching; what is entered takes that."""
    import sys
    from contextlib import contextmanager

    @contextmanager
    def watched() -> Any:
        if not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console

        with Console(stderr=True).status("measuring") as status:
            yield status.update

    return watched()


def _told(found: Benched) -> dict[str, Any]:
    paces = [
        {
            **asdict(pace),
            "tokens_per_second": pace.tokens_per_second,
            "limit": pace.limit,
            "share": pace.share,
            "bound_by": pace.bound_by,
        }
        for pace in found.paces
    ]
    return {**asdict(found), "paces": paces}


def _print(found: Benched) -> None:
    from rich.console import Console
    from rich.text import Text

    from clearhead.costs.units import columns, digits, in_bytes, in_flops, in_rate, in_seconds

    console = Console()
    machine, loaded = found.machine, found.loaded
    peaks = ", ".join(f"{dtype} {in_flops(peak)}/s" for dtype, peak in machine.peaks.items())
    threads = f"{machine.threads} {'thread' if machine.threads == 1 else 'threads'}"
    console.print(Text(f"{found.model}, {found.dtype}", "bold"), soft_wrap=True)
    console.print(f"This machine, {threads}: memory {in_rate(machine.bandwidth)}; products {peaks}", soft_wrap=True)
    of_file = "" if loaded.file_bytes is None else f", the file has {in_bytes(loaded.file_bytes)}"
    rose = "" if loaded.peak_bytes is None else f"; {in_bytes(loaded.peak_bytes)} at most while it was loaded"
    weights = f"weights {in_bytes(loaded.weight_bytes)}{of_file}{rose}"
    console.print(f"Loaded in {in_seconds(loaded.seconds)}; {weights}", soft_wrap=True)
    rows = [("", "tokens/s", "at the limit", "share", "a pass")]
    rows += [
        (p.name, digits(p.tokens_per_second), digits(p.limit), f"{p.share:.0%}", in_seconds(p.seconds))
        for p in found.paces
    ]
    lines = list(columns(rows, {1, 2, 3, 4}))
    console.print()
    console.print(Text(lines[0], "dim"), soft_wrap=True)
    for line, pace in zip(lines[1:], found.paces, strict=True):
        console.print(Text.assemble(line, "  ", bar(pace)), soft_wrap=True)
    legend = [piece for name, (sign, style) in PIECES.items() for piece in ((sign, style), f" {name}  ")]
    console.print(Text.assemble("A pass waits for  ", *legend), soft_wrap=True)
    console.print()
    for pace in found.paces:
        peak = machine.peaks.get(found.dtype, machine.peaks["float32"])
        words = {name: in_seconds(seconds) for name, seconds in pace.waits.items()}
        said = SAYS[pace.bound_by].format(
            bytes=in_bytes(pace.bytes),
            flops=in_flops(pace.flops),
            bandwidth=in_rate(machine.bandwidth),
            peak=in_flops(peak),
            **words,
        )
        console.print(f"{pace.name}: {said}, of {in_seconds(pace.seconds)} measured", soft_wrap=True)


def bar(pace: Pace) -> Text:
    """A pass as a bar: what it waited for, by length. Reading and computing go on at once, so the shorter of the two is
    left out; what is not explained is the rest.
    """
    from rich.text import Text

    longer = max(("memory", "arithmetic"), key=lambda name: pace.waits[name])
    drawn, left = Text(), BAR
    for name in (longer, "calls"):
        sign, style = PIECES[name]
        n = min(left, round(BAR * pace.waits[name] / pace.seconds))
        drawn.append(sign * n, style)
        left -= n
    sign, style = PIECES["rest"]
    return drawn.append(sign * left, style)
