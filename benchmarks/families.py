"""Models of about 125M numbers of each kind beside the `transformers` package, in one run, taking turns.

    python -m benchmarks.families [--only KIND ...] [--dtype D ...] [--quick] [--json] [--force] [--threads N]

Each is made random by `transformers`, saved, and loaded here, so both sides run the same weights. Measured are one pass
over a text (a picture for ViT; 1,024 tokens for the state spaces, which `transformers` scans in a Python loop), and the
steps of greedy decoding behind it. Times are medians of alternating runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import medians, require_quiet

DTYPES = ("float32", "bfloat16")
VOCAB = 32000


@dataclass(frozen=True)
class Kind:
    """A model to make, and what it is given."""

    make: Callable[[Any], Any]
    """The random model, given the `transformers` package."""
    n_tokens: int = 128
    decodes: bool = True
    reads: str = "tokens"


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    kind: str
    dtype: str
    what: str
    seconds: dict[str, float]
    ratio: float
    """How many times faster clearhead is."""


def gpt2(t: Any) -> Any:
    return t.GPT2LMHeadModel(t.GPT2Config())


def llama(t: Any) -> Any:
    return t.LlamaForCausalLM(
        t.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=768,
            intermediate_size=2048,
            num_hidden_layers=12,
            num_attention_heads=12,
            num_key_value_heads=4,
            tie_word_embeddings=True,
        )
    )


def experts(t: Any) -> Any:
    return t.MixtralForCausalLM(
        t.MixtralConfig(
            vocab_size=VOCAB,
            hidden_size=512,
            intermediate_size=1024,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=4,
            num_local_experts=8,
            tie_word_embeddings=True,
        )
    )


def bert(t: Any) -> Any:
    return t.BertForMaskedLM(t.BertConfig())


def t5(t: Any) -> Any:
    config = t.T5Config(
        vocab_size=VOCAB, d_model=640, d_kv=64, d_ff=2048, num_layers=8, num_heads=10, decoder_start_token_id=0
    )
    return t.T5ForConditionalGeneration(config)


def vit(t: Any) -> Any:
    return t.ViTForImageClassification(t.ViTConfig(num_labels=1000))


def mamba(t: Any) -> Any:
    return t.MambaForCausalLM(t.MambaConfig(vocab_size=VOCAB, hidden_size=768, num_hidden_layers=24))


def mamba2(t: Any) -> Any:
    config = t.Mamba2Config(
        vocab_size=VOCAB, hidden_size=768, num_hidden_layers=24, num_heads=24, head_dim=64, n_groups=1, state_size=128
    )
    return t.Mamba2ForCausalLM(config)


KINDS = {
    "gpt2": Kind(gpt2),
    "llama": Kind(llama),
    "experts": Kind(experts),
    "bert": Kind(bert, decodes=False),
    "t5": Kind(t5, reads="source"),
    "vit": Kind(vit, decodes=False, reads="pixels"),
    "mamba": Kind(mamba, n_tokens=1024),
    "mamba2": Kind(mamba2, n_tokens=1024),
}


class Theirs:
    """The model of the `transformers` package."""

    def __init__(self, model: Any, kind: Kind) -> None:
        self.model, self.kind = model.eval(), kind

    def read(self, given: Any) -> Any:
        import torch

        with torch.no_grad():
            if self.kind.reads == "pixels":
                return self.model(pixel_values=given).logits
            if self.kind.reads == "source":
                return self.model(input_ids=given, decoder_input_ids=given[:, :32]).logits
            return self.model(given, use_cache=False).logits if self.kind.decodes else self.model(given).logits

    def write(self, given: Any, n_new: int) -> None:
        import torch

        advised = self.model.generation_config
        advised.eos_token_id, advised.pad_token_id = None, 0
        with torch.no_grad():
            self.model.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=n_new)


class Ours:
    """The same weights here."""

    def __init__(self, model: Any, kind: Kind) -> None:
        self.model, self.kind = model, kind

    def read(self, given: Any) -> Any:
        import torch

        with torch.no_grad():
            if self.kind.reads == "pixels":
                return self.model(pixels=given)
            if self.kind.reads == "source":
                return self.model(given[:, :32], source=given)
            return self.model(given)

    def write(self, given: Any, n_new: int) -> None:
        import clearhead

        clearhead.generate(self.model, given, max_new_tokens=n_new, temperature=0, stop_tokens=())


def measure(name: str, kind: Kind, dtype: str, repeats: int, n_new: int) -> list[Line]:
    """The lines of one kind in one dtype."""
    import torch
    import transformers

    import clearhead

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    made = kind.make(transformers).to(getattr(torch, dtype))
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        sides: dict[str, Theirs | Ours] = {
            "clearhead": Ours(clearhead.load(folder), kind),
            "transformers": Theirs(made, kind),
        }
    if kind.reads == "pixels":
        given = torch.randn(1, 3, 224, 224, dtype=getattr(torch, dtype))
    else:
        given = torch.randint(10, VOCAB - 10 if name != "bert" else 30000, (1, kind.n_tokens))
    ours, theirs = sides["clearhead"].read(given), sides["transformers"].read(given)
    apart = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1))
    if dtype == "float32" and apart > 1e-3:
        sys.exit(f"{name}: the two sides differ by {apart:.1e}; a ratio of their times would mean nothing")
    found = medians({side: lambda s=s: s.read(given) for side, s in sides.items()}, repeats, warm_ups=0)  # type: ignore[misc]
    lines = [_line(name, dtype, f"pass over {_what(kind)}", found)]
    if kind.decodes:
        lines.append(_line(name, dtype, "a decoded token", _steps(sides, given[:, :64], n_new, repeats)))
    return lines


def _steps(sides: dict[str, Theirs | Ours], given: Any, n_new: int, repeats: int) -> dict[str, float]:
    """Seconds a step of decoding, the first apart."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(repeats + 1):
        for side, s in sides.items():
            passes: list[float] = []
            hook = s.model.register_forward_hook(lambda *_, passes=passes: passes.append(time.perf_counter()))
            s.write(given, n_new)
            hook.remove()
            if turn:
                times[side].append((passes[-1] - passes[0]) / (len(passes) - 1))
    return {side: statistics.median(found) for side, found in times.items()}


def _what(kind: Kind) -> str:
    return "a picture" if kind.reads == "pixels" else f"{kind.n_tokens:,} tokens"


def _line(kind: str, dtype: str, what: str, seconds: dict[str, float]) -> Line:
    return Line(kind, dtype, what, seconds, seconds["transformers"] / seconds["clearhead"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--force", action="store_true", help="measure even though the machine is busy")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    load = require_quiet(arguments.force)
    import torch

    torch.set_num_threads(arguments.threads)
    console = Console(stderr=True)
    lines: list[Line] = []
    repeats, n_new = (3, 9) if arguments.quick else (5, 17)
    for dtype in arguments.dtype:
        for name in arguments.only:
            with console.status(f"{name}, {dtype}"):
                lines += measure(name, KINDS[name], dtype, repeats, n_new)
            gc.collect()
    if arguments.json:
        print(json.dumps({"threads": arguments.threads, "load": load, "lines": [asdict(line) for line in lines]}))
        return
    table = Table(title=f"{arguments.threads} threads, others use {load:.0%} of the processors; medians of {repeats}")
    for column in ("model", "dtype", "what", "clearhead", "transformers", "ratio"):
        table.add_column(column, justify="left" if column in ("model", "dtype", "what") else "right")
    for line in lines:
        cells = (f"{line.seconds[side] * 1000:,.1f} ms" for side in ("clearhead", "transformers"))
        table.add_row(line.kind, line.dtype, line.what, *cells, f"{line.ratio:.2f} x")
    Console().print(table)


if __name__ == "__main__":
    main()
