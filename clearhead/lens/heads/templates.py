"""Sentences that ask a head for one thing: which noun the verb goes with, whom a pronoun means, what a bracket closes.

«...» is what a head should look at from ⟨...⟩, and ‹...› a rival that a head which can't tell the two apart would look
at as well. Each list is balanced: what is right comes before its rival about as often as after, and is as often this
word as that, so that a taste for a place or a word scores nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.inputs.tokenizer import Tokenizer

SUBJECT_VERB = (
    "The «keys» to the ‹cabinet› ⟨are⟩ on the table.",
    "The «key» to the ‹cabinets› ⟨is⟩ on the table.",
    "The «author» of the ‹books› ⟨writes⟩ every day.",
    "The «authors» of the ‹book› ⟨write⟩ every day.",
    "The «teacher» who knows the ‹boys› ⟨has⟩ left the school.",
    "The «teachers» who know the ‹boy› ⟨have⟩ left the school.",
    "The «ship» behind the ‹boats› ⟨was⟩ painted white.",
    "The «ships» behind the ‹boat› ⟨were⟩ painted white.",
    "Near the ‹houses› on the hill, the «road» ⟨turns⟩ to the north.",
    "Near the ‹house› on the hill, the «roads» ⟨turn⟩ to the north.",
    "After the ‹storms› of last week, the «river» ⟨is⟩ high.",
    "After the ‹storm› of last week, the «rivers» ⟨are⟩ high.",
    "With the help of the ‹doctors›, the «child» ⟨was⟩ well again.",
    "With the help of the ‹doctor›, the «children» ⟨were⟩ well again.",
)
PRONOUN = (
    "The «king» wrote to the ‹queen› because ⟨he⟩ was alone.",
    "The ‹king› wrote to the «queen» because ⟨she⟩ was alone.",
    "The «queen» wrote to the ‹king› because ⟨she⟩ was alone.",
    "The ‹queen› wrote to the «king» because ⟨he⟩ was alone.",
    "The «man» told the ‹woman› that ⟨he⟩ had lost the way.",
    "The ‹man› told the «woman» that ⟨she⟩ had lost the way.",
    "The «mother» waited for her ‹son› until ⟨she⟩ fell asleep.",
    "The ‹mother› waited for her «son» until ⟨he⟩ fell asleep.",
    "The «book» was given to the ‹children› before ⟨it⟩ was old.",
    "The ‹book› was given to the «children» before ⟨they⟩ were old.",
    "The «girls» looked at the ‹house› until ⟨they⟩ were tired.",
    "The ‹girls› looked at the «house» until ⟨it⟩ was dark.",
    "The «father» spoke to his ‹daughter› when ⟨he⟩ came home.",
    "The ‹father› spoke to his «daughter» when ⟨she⟩ came home.",
)
BRACKETS = (
    "we saw «(» one ‹[› two ] three ⟨)⟩ today",
    "we saw «[» one ‹(› two ) three ⟨]⟩ today",
    "we saw ‹[› one «(» two ⟨)⟩ three ] today",
    "we saw ‹(› one «[» two ⟨]⟩ three ) today",
    "it was «{» the ‹(› red ) house ⟨}⟩ there",
    "it was ‹(› the «{» red ⟨}⟩ house ) there",
    "they had «(» men and ‹(› many ) more ⟨)⟩ here",
    "they had ‹(› men and «(» many ⟨)⟩ more ) here",
    "it came «[» in the ‹[› old ] days ⟨]⟩ again",
    "it came ‹[› in the «[» old ⟨]⟩ days ] again",
    "a part «(» of this ‹{› was } lost ⟨)⟩ at sea",
    "a part ‹{› of this «(» was ⟨)⟩ lost } at sea",
)
TEMPLATES = {"subject-verb": SUBJECT_VERB, "pronoun": PRONOUN, "bracket": BRACKETS}

PROSE = (
    "On the first morning of the new year the old captain went down to the harbour to see what the storm had done. "
    "Two boats lay on their side, and a third was gone. The men of the town stood together and said nothing, for each"
    " of them knew whose boat it was. The captain asked who had been the last to see it. A boy said that he had seen "
    "the boat go out before the storm, with a red light at its mast and three men on board. So the captain took a "
    "glass and looked out over the sea. The sea was grey, and the sky was grey, and there was nothing between the sea"
    " and the sky. But in the evening, when the people had gone home and the boy alone was still looking, a red light"
    " came round the point, and behind the light came the boat, and in the boat were the three men. The next day the "
    "whole town had bread and meat and wine, and the boy had a new coat, and the captain gave him the glass."
)
"""What any text is measured on where none is given."""

MARKS = {"«": "target", "»": "target", "‹": "rival", "›": "rival", "⟨": "query", "⟩": "query"}


@dataclass(frozen=True)
class Sentence:
    """A template in a tokenizer's tokens: the places of the query's last token, of the right one and of its rival."""

    ids: list[int]
    query: int
    target: tuple[int, ...]
    rival: tuple[int, ...]


def sentence(tokenizer: Tokenizer, template: str) -> Sentence | None:
    """None where the tokenizer can't write the template, or joins what is marked with what stands beside it."""
    text, spans = unmarked(template)
    core = tokenizer.core.encode(text, add_special_tokens=False)
    if core.ids != tokenizer.encode(text, bos=False) or tokenizer.unk_id in core.ids:
        return None
    places: dict[str, tuple[int, ...]] = {}
    for name, (start, end) in spans.items():
        found = tuple(i for i, (a, b) in enumerate(core.offsets) if max(a, start) < min(b, end))
        covered = text[core.offsets[found[0]][0] : core.offsets[found[-1]][1]] if found else ""
        if covered.strip() != text[start:end]:
            return None
        places[name] = found
    return Sentence(core.ids, places["query"][-1], places["target"], places["rival"])


def unmarked(template: str) -> tuple[str, dict[str, tuple[int, int]]]:
    """The text alone, and where in it each marked part begins and ends."""
    text, spans = "", {}
    for piece in re.split("(«.*?»|‹.*?›|⟨.*?⟩)", template):
        if piece[:1] in MARKS:
            body = piece[1:-1]
            spans[MARKS[piece[0]]] = (len(text), len(text) + len(body))
            text += body
        else:
            text += piece
    return text, spans


def writes(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the tokenizer can say this text, and not only spell something like it."""
    ids = tokenizer.encode(text, bos=False)
    said = tokenizer.decode(ids).strip().lower()
    return (
        tokenizer.unk_id not in ids and "".join(said.split()) == "".join(text.lower().split()) and len(ids) < len(text)
    )
