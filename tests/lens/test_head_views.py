"""All heads as small maps, and lines between tokens: the right numbers under the right names, in every form."""

from __future__ import annotations

import base64
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from PIL import Image
from rich.console import Console

from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.seen import Seen
from clearhead.lens.views.heads import Grid, Layer
from clearhead.lens.views.links import LEAST, Links
from clearhead.lens.views.palette import HEADS, colour, level, of_head, tones
from clearhead.lens.views.thumbnail import steps
from tests.lens.conftest import random_pattern
from tests.lens.pages import Page

SVG = "{http://www.w3.org/2000/svg}"
TOKENS = ["<bos>", "·keys", "<script>alert(1)</script>", "⏎", "·שלום"]


def layers(n: int = 5, heads: int = 3) -> list[Layer]:
    tokens = [TOKENS[place % len(TOKENS)] for place in range(n)]
    pattern_HTS = torch.stack([random_pattern(n).roll(head, 0) if head else random_pattern(n) for head in range(heads)])
    return [Layer(f"layers.{layer}.mixer", pattern_HTS * (1 - 0.1 * layer), tokens, tokens) for layer in range(2)]


def text_of(figure: Grid | Links, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), no_color=True, color_system=None)
    figure.show(console=console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Grid, Links])
def test_a_page_of_heads_holds_every_number_under_its_name(kind):
    page = Page(kind("Heads", layers()).page())
    assert page.stands_alone()
    assert page.data["rows"] == [[0, 1, 2], [3, 4, 5]]
    for number, its in enumerate(page.data["maps"]):
        layer, head = divmod(number, 3)
        assert (its["name"], its["head"]) == (f"layers.{layer}.mixer", head)
        expected = layers()[layer].pattern_HTS[head]
        held = page.numbers(its["id"], its["size"])
        assert [f"{x:.4f}" for x in held.flatten()] == [f"{x:.4f}" for x in expected.flatten()]
        assert its["triangle"] == (head == 0)
    (side,) = page.data["sides"]
    assert side["queries"] == TOKENS
    assert side["keys"] is None


@pytest.mark.parametrize("kind", [Grid, Links])
def test_a_token_is_never_markup(kind):
    harmless = [layer._replace(queries=list("abcde"), keys=list("abcde")) for layer in layers()]
    assert Page(kind("a", layers()).page()).tags == Page(kind("a", harmless).page()).tags
    assert Page(kind("<script>x</script>", layers()).page()).tags == Page(kind("a", harmless).page()).tags


def test_the_two_sides_of_a_cross_attention_keep_their_tokens():
    pattern_HTS = torch.rand(2, 3, 4).softmax(-1)
    page = Page(Grid("Heads", [Layer("layers.0.cross", pattern_HTS, list("abc"), list("wxyz"))]).page())
    assert page.data["sides"] == [
        {"queries": [*"abc"], "queryNames": [*"abc"], "keys": [*"wxyz"], "keyNames": [*"wxyz"]}
    ]
    assert page.data["maps"][0]["size"] == [3, 4]


def test_small_maps_in_a_picture_are_the_patterns(tmp_path):
    grid = Grid("Heads", layers())
    root = ElementTree.fromstring(grid.save(tmp_path / "grid.svg").read_text(encoding="utf-8"))
    images = list(root.iter(SVG + "image"))
    assert len(images) == 2 * 6
    for number, image in enumerate(images):
        theme = image.get("class")
        (layer, head), picture = divmod(number // 2, 3), image.get("href").removeprefix("data:image/png;base64,")
        cells = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
        pattern_TS = grid.layers[layer].pattern_HTS[head]
        for query, key in ((0, 0), (4, 0), (3, 2)):
            assert cells.getpixel((key, query)) == colour(level(float(pattern_TS[query, key])), theme)
    sheet, drawn = grid.sheet(), Image.open(grid.save(tmp_path / "grid.png"))
    assert drawn.size == (round(2 * sheet.width), round(2 * sheet.height))
    for place in sheet.maps:
        side = place.width / 5
        middle = (round(2 * (place.x + 1.5 * side)), round(2 * (place.y + 3.5 * side)))
        assert drawn.getpixel(middle) == colour(int(place.steps_TS[3, 1]), "light")


def test_a_map_made_smaller_keeps_its_spikes():
    pattern_TS = torch.zeros(512, 512)
    pattern_TS[400, 37] = 1
    small = steps(pattern_TS, 128)
    assert small.shape == (128, 128)
    assert small.nonzero().tolist() == [[100, 9]]


def test_lines_are_as_strong_as_their_weights_and_in_the_colour_of_their_head(tmp_path):
    figure = Links("Links", layers(), chosen=1, heads=(0, 2))
    root = ElementTree.fromstring(figure.save(tmp_path / "links.svg").read_text(encoding="utf-8"))
    lines = list(root.iter(SVG + "line"))
    pattern_HTS = figure.layers[1].pattern_HTS[[0, 2]]
    assert len(lines) == int((pattern_HTS >= LEAST).sum())
    hints = {}
    for line in lines:
        head, weight = re.match(r"head (\d): .* → .*: (.*)", line.find(SVG + "title").text, re.S).groups()
        hints.setdefault(head, []).append(float(weight))
        assert float(line.get("stroke-opacity")) == pytest.approx(float(weight), abs=1e-3)
        assert line.get("class") == f"of-h{head}"
    for head, expected in zip("02", pattern_HTS, strict=True):
        assert hints[head] == pytest.approx(expected[expected >= LEAST].tolist(), abs=1e-4)
    assert {"·keys", "<script>alert(1)</s…", "layers.1.mixer, head 0, 2"} <= {
        (text.text or "").partition(". On")[0] for text in root.iter(SVG + "text")
    }


def test_the_first_token_can_be_left_out_of_the_lines():
    few, all_ = (Links("Links", layers(), heads=(0,), first=first).sheet() for first in (False, True))
    assert len(all_.lines) - len(few.lines) == int((layers()[0].pattern_HTS[0, :, 0] >= LEAST).sum())
    assert Page(Links("Links", layers(), first=False).page()).data["first"] is False


def test_a_line_in_a_png_has_its_heads_colour(tmp_path):
    pattern_HTS = torch.zeros(2, 3, 3)
    pattern_HTS[1, 2, 2] = 1
    figure = Links("Links", [Layer("layers.0.mixer", pattern_HTS, list("abc"), list("abc"))])
    image, (line,) = Image.open(figure.save(tmp_path / "links.png")), figure.sheet().lines
    assert image.getpixel((round(line.x + line.to_x), round(line.y + line.to_y))) == HEADS["light"][1]
    assert tones("light")[of_head(1 + len(HEADS["light"]))] == HEADS["light"][1]


def test_seen_draws_grid_map_and_links_of_what_was_looked_at(model, tmp_path):
    seen = look(model, "keys")
    assert seen.grid().save(tmp_path / "grid.html").exists()
    assert [layer.name for layer in seen.grid("layers.1.*").layers] == ["layers.1.mixer"]
    assert torch.equal(seen.grid().layers[1].pattern_HTS, seen["layers.1.mixer.pattern"][0])
    assert torch.equal(seen.map("layers.1.mixer.pattern", 2).pattern_TS, seen["layers.1.mixer.pattern"][0, 2])
    assert torch.equal(seen.map().pattern_TS, seen["layers.0.mixer.pattern"][0].mean(0))
    links = seen.links("layers.1.mixer.pattern", [3])
    assert (links.chosen, links.shown[1]) == (1, [3])
    assert json.loads(seen.save(tmp_path / "seen.json").read_text()) == json.loads(json.dumps(seen.grid().to_json()))


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda seen: seen.map("layers.0.mixer.pattern", 4), "heads 0 to 3, not 4"),
        (lambda seen: seen.links(heads=[0, 9]), "not 9"),
        (lambda seen: seen.grid("layers.7.*"), r"layers\.0\.mixer\.pattern"),
        (lambda seen: seen.map(row=3), "not 3"),
    ],
)
def test_what_was_not_looked_at_is_not_drawn(model, draw, words):
    with pytest.raises(ClearheadError, match=words):
        draw(look(model, "keys"))


def test_sides_are_the_texts_that_were_read():
    own, cross = torch.rand(1, 2, 3, 3).softmax(-1), torch.rand(1, 2, 3, 4).softmax(-1)
    source = torch.rand(1, 2, 4, 4).softmax(-1)
    values = {"encoder.layers.0.mixer.pattern": source, "layers.0.mixer.pattern": own, "layers.0.cross.pattern": cross}
    seen = Seen(values, {}, None, [["a", "b", "\n"]], sources=[[" w", "x", "y", "z"]])
    reads, texts = ["·w", "x", "y", "z"], ["a", "b", "⏎"]
    assert [(layer.queries, layer.keys) for layer in seen.grid().layers] == [
        (reads, reads),
        (texts, texts),
        (texts, reads),
    ]
    blind = Seen(values, {}, None, [])
    assert blind.grid().layers[2].keys == ["0", "1", "2", "3"]
    page = Page(blind.map("layers.0.cross.pattern", 1).page())
    assert page.data["maps"][0]["size"] == [3, 4]
    assert "0 1 2 3" in " ".join(text_of(blind.map("layers.0.cross.pattern", 1)).split())


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_grid_fits_the_screen(width):
    lines = text_of(Grid("Heads", layers(30, 7)), width).splitlines()
    assert max(map(len, lines)) <= width
    names = re.findall(r"(?:head )?(\d)(?= |$)", " ".join(line[14:] for line in lines if "0.mixer" in line))
    assert names == list("0123456")


def test_the_grid_in_a_terminal_is_dark_where_the_pattern_is():
    pattern_HTS = torch.zeros(1, 16, 16)
    pattern_HTS[0, :8, 8:] = 1
    lines = text_of(Grid("Heads", [Layer("x", pattern_HTS, ["a"] * 16, ["a"] * 16)]), 60).splitlines()
    assert [line[2:].ljust(16) for line in lines[2:10]] == [" " * 8 + "█" * 8] * 4 + [" " * 16] * 4


def test_links_in_a_terminal_name_the_heads_and_isolate_what_runs_leftwards():
    text = text_of(Links("Links", layers(), heads=(1,)))
    assert "layers.0.mixer, head 1" in text
    assert "\u2068שלום\u2069 ←" in text
