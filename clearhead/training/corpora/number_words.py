"""Numbers in words, from English to German and French: translation with real reordering and exact answers.

Sources say which language is wanted: "de: twenty-one" is "einundzwanzig". Words are those of the package `num2words`.
What is held out is held out by number: a number in one of the files held_out_*.tsv is in no pair that is learnt, in
neither language and in no list.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from clearhead.errors import ClearheadError

LANGUAGES = ("de", "fr")
DIGITS = (1, 2, 3, 4, 5, 6)
LEARNT = {1: 10, 2: 78, 3: 820, 4: 6000, 5: 12000, 6: 20000}
"""So many numbers of so many digits are learnt: of the short ones all that are not held out."""
HELD_OUT = {1: 0, 2: 12, 3: 80, 4: 400, 5: 500, 6: 1000}
LISTS = 24_000
"""So many lists of learnt numbers in each language."""
HELD_OUT_LISTS = 200
LONGEST_LIST = 5
SEED = 2017


def gather(folder: Path, say: Callable[[str], None]) -> None:
    """Write learnt.tsv, held_out_de.tsv, held_out_fr.tsv and held_out_lists.tsv to `folder`, with the columns source
    and target.

    Raises:
        ClearheadError: `num2words` is not installed.
    """
    rng = random.Random(SEED)
    learnt, held = numbers(rng)
    say(f"writing {len(learnt) + len(held):,} numbers in English, German and French words (a minute)")
    words = {language: in_words([*learnt, *held], language) for language in ("en", *LANGUAGES)}
    lists = drawn(rng, learnt, LISTS)
    rows = [pair for language in LANGUAGES for pair in pairs(words, language, [[n] for n in learnt] + lists[language])]
    rng.shuffle(rows)
    write(folder / "learnt.tsv", rows)
    for language in LANGUAGES:
        write(folder / f"held_out_{language}.tsv", pairs(words, language, [[n] for n in held]))
    lists = drawn(rng, held, HELD_OUT_LISTS)
    write(
        folder / "held_out_lists.tsv",
        [pair for language in LANGUAGES for pair in pairs(words, language, lists[language])],
    )


def numbers(rng: random.Random) -> tuple[list[int], list[int]]:
    """The numbers to learn from and those held out."""
    learnt: list[int] = []
    held: list[int] = []
    for digits in DIGITS:
        # Numbers to twenty have names of their own, which nobody can tell from those of others.
        first = {1: 0, 2: 10}.get(digits, 10 ** (digits - 1))
        named = range(first, 21) if digits == 2 else range(0)
        drawn = rng.sample(range(first + len(named), 10**digits), LEARNT[digits] + HELD_OUT[digits] - len(named))
        held += drawn[: HELD_OUT[digits]]
        learnt += [*named, *drawn[HELD_OUT[digits] :]]
    return sorted(learnt), sorted(held)


def drawn(rng: random.Random, known: Sequence[int], n: int) -> dict[str, list[list[int]]]:
    """Lists of two to five numbers, of all lengths alike, for each language."""
    by_digits = [[number for number in known if len(str(number)) == digits] for digits in DIGITS]
    by_digits = [found for found in by_digits if found]

    def one() -> list[int]:
        return [rng.choice(rng.choice(by_digits)) for _ in range(rng.randint(2, LONGEST_LIST))]

    return {language: [one() for _ in range(n)] for language in LANGUAGES}


def in_words(numbers: Iterable[int], language: str) -> dict[int, str]:
    """What numbers are called."""
    converter = _num2words().CONVERTER_CLASSES[language]
    return {number: converter.to_cardinal(number) for number in numbers}


def pairs(words: dict[str, dict[int, str]], language: str, lists: Iterable[Sequence[int]]) -> list[tuple[str, str]]:
    """Sources and targets of lists of numbers, which a semicolon parts: commas stand within numbers."""
    return [
        (f"{language}: {'; '.join(words['en'][n] for n in one)}", "; ".join(words[language][n] for n in one))
        for one in lists
    ]


def write(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    """A table of sources and targets."""
    lines = "".join(f"{source}\t{target}\n" for source, target in rows)
    path.write_text("source\ttarget\n" + lines, encoding="utf-8")


def _num2words() -> Any:
    if importlib.util.find_spec("num2words") is None:
        raise ClearheadError(
            'corpus:number_words is made by the package `num2words`. Run: pip install "clearhead[train]"'
        )
    return importlib.import_module("num2words")


# ---- what the words are made of


def hyphened(words: Iterable[str]) -> tuple[str, ...]:
    """Words behind a hyphen, which is no piece by itself: a model would look at it in place of a word."""
    return tuple(f"-{word}" for word in words)


def inside(*words: str) -> tuple[str, ...]:
    """Pieces that stand behind others in a word."""
    return tuple(f"##{word}" for word in words)


ENGLISH_UNITS = tuple("one two three four five six seven eight nine".split())
ENGLISH = (
    *("zero", "hundred", "thousand", "and"),
    *"ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(),
    *ENGLISH_UNITS,
    *"twenty thirty forty fifty sixty seventy eighty ninety".split(),
    *inside(",", *hyphened(ENGLISH_UNITS)),
)
GERMAN_UNITS = tuple("ein zwei drei vier fünf sechs sieben acht neun".split())
GERMAN_ABOVE = (
    *"zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split(),
    *"zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(),
)
GERMAN = (
    *("null", "eins", *GERMAN_UNITS, *GERMAN_ABOVE),
    *inside("und", "hundert", "tausend", "eins", *GERMAN_UNITS, *GERMAN_ABOVE),
)
FRENCH_UNITS = tuple("un deux trois quatre cinq six sept huit neuf".split())
FRENCH_TEENS = tuple("dix onze douze treize quatorze quinze seize".split())
FRENCH_TENS = tuple("vingt trente quarante cinquante soixante".split())
FRENCH = (
    *("zéro", "et", "cent", "cents", "mille", *FRENCH_UNITS, *FRENCH_TEENS, *FRENCH_TENS),
    *inside(*hyphened((*FRENCH_UNITS, *FRENCH_TEENS, "vingt", "vingts"))),
)
PIECES = ("de:", "fr:", *inside(";"), *ENGLISH, *GERMAN, *FRENCH)
"""What all these texts are made of: units, "und" and tens apart, as people count."""
