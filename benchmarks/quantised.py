"""What each way of keeping weights small loses against float32, on the text of this project's own documents.

    python -m benchmarks.quantised [SOURCE] [--json] [--tokens N]

Logit error: the largest |a - b| over the largest |b|, and the root mean square of a - b over the spread of b.
Perplexity of the text, and how often the likeliest next token is the same. Gemma's own weights are those of its file,
which has been quantised once already; `gemma3-270m` is the default all the same, as it is the model people have.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import clearhead
from clearhead.checkpoints.keeping import Made
from clearhead.model.transformer import Transformer
from clearhead.ops.blocks import SIZES
from clearhead.ops.quantise import MAKE, quantise
from clearhead.ops.quantised import QuantisedTensor

TEXT = Path(__file__).parents[1] / "ARCHITECTURE.md"


@dataclass(frozen=True)
class Loss:
    """One line of the table."""

    weights: str
    megabytes: float
    worst: float
    spread: float
    perplexity: float
    agreement: float


def kinds() -> Iterator[tuple[str, Made | None]]:
    """What is compared, by name: one kind for all matrices, or as `weights=` has them."""
    yield "float32", None
    yield from ((name, Made(bits)) for name, bits in (("int8", 8), ("int4", 4)))
    yield from ((kind, AllOf(kind)) for kind in (*MAKE, "Q5_0"))


class AllOf(Made):
    """All matrices in blocks of one kind, where their rows are whole blocks."""

    def __init__(self, name: str) -> None:
        super().__init__(8)
        self.name = name

    def kind(self, model: Transformer, name: str) -> str | None:
        whole = model.get_parameter(name).shape[-1] % SIZES[self.name].block == 0
        return self.name if whole and super().kind(model, name) is not None else None


def blocks(weight: Tensor, kind: str) -> Tensor:
    """A weight in blocks; of the kinds that clearhead only reads, as the `gguf` package makes them."""
    if kind in MAKE:
        return quantise(weight, kind)
    from gguf import GGMLQuantizationType, quants

    return torch.from_numpy(quants.quantize(weight.numpy(), GGMLQuantizationType[kind]))


def kept(source: str, how: Made | None) -> Transformer:
    """The model with its matrices made into blocks."""
    model = clearhead.load(source, dtype="float32")
    names = [name for name, _ in model.named_parameters()]
    for name in names if how is not None else ():
        assert how is not None
        if (kind := how.kind(model, name)) is not None:
            owner, _, leaf = name.rpartition(".")
            plain = model.get_parameter(name).detach()
            made = QuantisedTensor(blocks(plain, kind), kind)
            setattr(model.get_submodule(owner), leaf, nn.Parameter(made, requires_grad=False))
    return model


@torch.inference_mode()
def measure(source: str, n_tokens: int) -> list[Loss]:
    """Every way against plain float32 numbers."""
    found: list[Loss] = []
    reference: Tensor | None = None
    for name, how in kinds():
        model = kept(source, how)
        ids = torch.tensor([model.tokenizer.encode(TEXT.read_text())[:n_tokens]])
        logits_TV = model(ids)[0]
        reference = logits_TV if reference is None else reference
        found.append(
            Loss(
                weights=name,
                megabytes=sum(p.nbytes for p in model.parameters()) / 1e6,
                worst=float((logits_TV - reference).abs().max() / reference.abs().max()),
                spread=float((logits_TV - reference).square().mean().sqrt() / reference.std()),
                perplexity=float(F.cross_entropy(logits_TV[:-1], ids[0, 1:]).exp()),
                agreement=float((logits_TV.argmax(-1) == reference.argmax(-1)).float().mean()),
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default="gemma3-270m")
    parser.add_argument("--tokens", type=int, default=512, help="how much of the text is read")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = measure(options.source, options.tokens)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    drawn = Table(title=f"{options.source}, the first {options.tokens} tokens of {TEXT.name}")
    for column in ("weights", "MB", "worst logit", "rms of logits", "perplexity", "same token"):
        drawn.add_column(column, justify="left" if column == "weights" else "right")
    for one in found:
        shares = (f"{one.worst:.2%}", f"{one.spread:.2%}", f"{one.perplexity:.2f}", f"{one.agreement:.1%}")
        drawn.add_row(one.weights, f"{one.megabytes:,.0f}", *shares)
    Console().print(drawn)


if __name__ == "__main__":
    main()
