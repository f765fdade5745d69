"""What a prefix saves: the time to the first token of a prompt that begins with it, and what keeping it costs.

    python -m benchmarks.prefix [SOURCE] [--tokens 1000] [--new 10] [--repeats 5] [--json] [--force]

Prompts of random tokens; whole and behind the prefix in turn, medians. The limit is reading the new tokens alone, with
nothing before them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import clearhead
from benchmarks.machine import medians, require_quiet, threads
from clearhead.generation import Prefix, load_prefix, read_prefix
from clearhead.generation.fingerprint import digest


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefix")
    parser.add_argument("source", nargs="?", default="gemma3-270m", metavar="SOURCE")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--new", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--force", action="store_true")
    options = parser.parse_args(argv)
    require_quiet(options.force)
    found = measure(options.source, options.tokens, options.new, options.repeats)
    if options.json:
        json.dump(found, sys.stdout)
        return
    table = Table(title=f"{options.tokens} tokens and {options.new} new ones, {threads()} threads")
    for name in ("what", "ms", "of whole"):
        table.add_column(name)
    for name, seconds in found.items():
        table.add_row(name, f"{1000 * seconds:.1f}", f"{seconds / found['whole']:.3f}")
    Console().print(table)


def measure(source: str, n_tokens: int, n_new: int, repeats: int) -> dict[str, float]:
    """Seconds of each piece of work, by its name."""
    model = clearhead.load(source)
    ids = torch.randint(5, model.config.vocab_size, (n_tokens + n_new,)).tolist()
    text, prompt = ids[:n_tokens], ids
    prefix = read_prefix(model, text)

    def first(given: list[int], behind: Prefix | None = None) -> Callable[[], object]:
        return lambda: clearhead.generate(model, given, max_new_tokens=1, stop_tokens=(), prefix=behind)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prefix"
        prefix.save(file)
        runs = {
            "whole": first(prompt),
            "behind the prefix": first(prompt, prefix),
            "the new tokens alone": first(ids[n_tokens - 1 :]),
            "the state for a row": lambda: prefix.state(model, prefix.memory.n, 1, 64),
            "saving": lambda: prefix.save(file),
            "loading": lambda: load_prefix(file, model),
            "fingerprint of the model": lambda: digest(model.named_parameters()),
        }
        return medians(runs, repeats)


if __name__ == "__main__":
    main()
