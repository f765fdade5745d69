"""`make demo`: a real model continues a sentence, and shows what it expected and where it looked.

Every number is computed while you watch. `python -m clearhead.lens.demo "Another sentence"` takes another.
"""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.text import Text

from clearhead.errors import ClearheadError
from clearhead.lens.views.labels import bare, names, visible
from clearhead.lens.views.screen import theme_of
from clearhead.lens.views.terminal import BOLD, DIM, attention_map, bars, legend

if TYPE_CHECKING:
    from clearhead.lens.seen import Seen
    from clearhead.model.transformer import Transformer

MODEL = "gemma3-270m"
SENTENCE = "The keys to the cabinet"
RIVALS = (" are", " is")
"""How the sentence may go on: with a verb for the keys, or for the nearer cabinet."""
LOOKED_AT = "keys"
NEW_TOKENS = 10
HEADS = 3
_SIDE_BY_SIDE = 99
"""Columns from which three maps of a short sentence stand beside one another."""


def main(arguments: list[str]) -> int:
    console = Console(highlight=False)
    sentence = " ".join(arguments).strip() or SENTENCE
    try:
        show(console, sentence)
    except ClearheadError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
        return 130
    return 0


def show(console: Console, sentence: str) -> None:
    """The whole demo, for one sentence."""
    model = _load(console)
    console.print()
    console.out(sentence, end="", highlight=False)
    _continue(console, model, sentence)

    from clearhead.lens.record import PATTERNS, look

    seen = look(model, sentence, PATTERNS)
    _expected(console, model, sentence, seen)
    _more(console, sentence, *_looked(console, sentence, seen))


def _load(console: Console) -> Transformer:
    start = time.perf_counter()
    with Console(stderr=True).status(f"loading {MODEL}"):
        from clearhead.checkpoints.load import load

        model = load(MODEL)
    seconds = time.perf_counter() - start
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    layers = len(model.config.stack.blocks)
    console.print(f"{MODEL}: {layers} layers, {millions:.0f} million parameters, loaded in {seconds:.1f} s", style=DIM)
    return model


def _continue(console: Console, model: Transformer, sentence: str) -> None:
    from clearhead.generation import stream

    for piece in stream(model, sentence, max_new_tokens=NEW_TOKENS, temperature=0):
        console.out(piece, end="", style=BOLD, highlight=False)
    console.print()


def _expected(console: Console, model: Transformer, sentence: str, seen: Seen) -> None:
    """The likeliest next tokens; for the sentence of this demo, both rival verbs among them in any case."""
    from clearhead.lens.attend import next_tokens

    console.print(Text("\nWhat it expected next", style=BOLD))
    likely = {token.text: token.probability for token in next_tokens(model, seen.output, 8)}
    rivals = _rivals(model, sentence, seen) if sentence == SENTENCE else {}
    likely |= rivals
    console.print(bars(list(likely), list(likely.values()), width=console.width, theme=theme_of(console)))
    if rivals:
        (many, likelier), (one, less) = rivals.items()
        many, one = f"“{bare(many)}”", f"“{bare(one)}”"
        line = Text().append(f"{many} goes with keys, {one} with the nearer cabinet: ", DIM)
        console.print(line.append(f"{many} is {likelier / less:.1f} times as likely"))


def _rivals(model: Transformer, sentence: str, seen: Seen) -> dict[str, float]:
    """The first token of either way to go on, and how likely it is."""
    assert model.tokenizer is not None
    shares_V = seen.output[0, -1].float().softmax(-1)
    tokens = [model.tokenizer.encode(sentence + rival)[-1] for rival in RIVALS]
    return {visible(model.tokenizer.pieces([token])[0]): float(shares_V[token]) for token in tokens}


def _looked(console: Console, sentence: str, seen: Seen) -> tuple[int, int]:
    """The heads that look most at one token from the last one; gives the layer and number of the first of them."""
    labels = seen.labels()
    words, last = names(labels), len(labels) - 1
    # (heads of all layers, tokens): what each looks at from the last token.
    rows = {(name, head): row for name in seen for head, row in enumerate(seen.pattern(name)[:, -1].tolist())}
    key = _choose(sentence, labels, list(rows.values()))
    best = sorted(rows, key=lambda place: -rows[place][key])[:HEADS]
    console.print(
        Text(f"\nWhere it looked: of {len(rows)} heads, the {len(best)} that look most at ")
        .append(words[key], BOLD)
        .append(" from ")
        .append(words[last], BOLD)
        .append("\n")
    )
    theme = theme_of(console)
    side_by_side = console.width >= _SIDE_BY_SIDE and len(labels) <= 8
    width = console.width // HEADS - 2 if side_by_side else console.width
    maps: list[RenderableType] = []
    for name, head in best:
        title = Text().append(f"layer {_layer(name)}, head {head}", BOLD).append(f"   {words[key]} ")
        title.append(f"{rows[name, head][key]:.2f}", BOLD)
        drawing = attention_map(seen.pattern(name)[head], labels, width=width, theme=theme, key=False)
        maps.append(Group(title, drawing, *([] if side_by_side else [Text()])))
    if side_by_side:
        console.print(Columns(maps, width=width, padding=(0, 2)))
    else:
        console.print(*maps, sep="\n", soft_wrap=True)
    console.print(legend(theme, 3, triangle=True))
    return _layer(best[0][0]), best[0][1]


def _layer(address: str) -> int:
    return int(address.split(".")[1])


def _choose(sentence: str, labels: list[str], rows: list[list[float]]) -> int:
    """The token to ask about: the keys; in another sentence, what all heads together look at most, further back."""
    words = [bare(label) for label in labels]
    if sentence == SENTENCE and LOOKED_AT in words:
        return words.index(LOOKED_AT)
    from clearhead.lens.attend import further_back

    totals = [sum(row[key] for row in rows) for key in range(len(labels))]
    return max(range(len(labels))[further_back(len(labels))], key=totals.__getitem__)


def _more(console: Console, sentence: str, layer: int, head: int) -> None:
    console.print(Text("\nGo on", style=BOLD))
    quoted = shlex.quote(sentence) if any(mark in sentence for mark in '"$`\\!') else f'"{sentence}"'
    for line in (
        'make demo TEXT="The trophy did not fit in the suitcase because it was too"',
        f"clearhead look {MODEL} {quoted} --layer {layer} --head {head} --save map.html",
        f"clearhead generate {MODEL} {quoted}",
    ):
        console.print(Text(f"  {line}", style=DIM), soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
