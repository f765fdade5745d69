"""The tables of benchmarks/decode.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from benchmarks.decode import Found

OURS = "clearhead"
MEGABYTE = 10**6


def _table(title: str, first: str, *columns: str) -> Table:
    drawn = Table(title=title, title_justify="left")
    drawn.add_column(first, no_wrap=True)
    for column in columns:
        drawn.add_column(column, justify="right")
    return drawn


def speed_table(title: str, found: list[Found], n_new: int) -> Table:
    """How fast each is, what of the limit that is, and where the time of a step goes."""
    lengths = list(found[0].prefill)
    drawn = _table(
        f"{title}: {n_new} new tokens behind 64",
        "",
        *("MB read\na step", "1 row\ntokens/s", "of limit", "ms a\nstep", "at the\nlimit", "products", "other"),
        *("8 rows\ntokens/s", "x 1 row", "products", "other"),
        *(f"prompt\n{length:,}" for length in lengths),
        "same\ntokens",
    )
    for f in found:
        one, many = f.writing[1], f.writing.get(8)
        cells = [f.name, f"{f.weight_bytes / MEGABYTE:,.0f}", f"{one.tokens_per_second:,.1f}"]
        cells += [f"{one.share_of_limit:.0%}", f"{one.step_seconds * 1e3:.1f}", f"{one.limit_seconds * 1e3:.1f}"]
        cells += _parts(one.step_seconds, one.products_seconds)
        if many is None:
            cells += [""] * 4
        else:
            cells += [f"{many.tokens_per_second:,.1f}", f"{many.tokens_per_second / one.tokens_per_second:.1f}"]
            cells += _parts(many.step_seconds, many.products_seconds)
        cells += [f"{f.prefill[length]:,.0f}" if f.prefill else "" for length in lengths]
        drawn.add_row(*cells, f"{f.same_tokens:.3g}")
    return drawn


def _parts(step: float, products: float | None) -> list[str]:
    """Milliseconds of a step in products with weights, and in all else."""
    return ["", ""] if products is None else [f"{products * 1e3:.1f}", f"{(step - products) * 1e3:.1f}"]


def ratio_table(title: str, found: list[Found], n_new: int) -> Table:
    """How many times as fast as each peer."""
    lengths = list(found[0].prefill)
    columns = (
        "1 row",
        "8 rows",
        *(f"prompt {length:,}" for length in lengths),
        "share of limit",
        "to first token",
        "peak",
    )
    drawn = _table(f"{title}: over each peer", "", *columns)
    for ours in (f for f in found if f.library == OURS):
        for peer in (f for f in found if f.library != OURS):
            cells = [f"{ours.name} / {peer.name}"]
            for n in (1, 8):
                both = n in ours.writing and n in peer.writing
                cells.append(
                    _ratio(ours.writing[n].tokens_per_second, peer.writing[n].tokens_per_second) if both else ""
                )
            cells += [_ratio(ours.prefill[n], peer.prefill[n]) if ours.prefill else "" for n in lengths]
            cells.append(_ratio(ours.writing[1].share_of_limit, peer.writing[1].share_of_limit))
            for name in ("first_token_seconds", "written_bytes"):
                cells.append(_ratio(_own(ours, name), _own(peer, name)) if ours.plain else "")
            drawn.add_row(*cells)
    return drawn


def _ratio(a: float, b: float) -> str:
    return f"{a / b:.2f} x"


def _own(found: Found, name: str) -> float:
    """A time; or bytes, without those of the imports."""
    return found.loading[name] - (found.loading["imported_bytes"] if name.endswith("bytes") else 0)


def load_table(title: str, found: list[Found], n_new: int) -> Table:
    """What a new process takes."""
    drawn = _table(
        f"{title}: a new process, after imports, the tokenizer apart (llama.cpp: part of loading)",
        "",
        *("to first\ntoken s", "loading s", "tokenizer s", "imports s", "weights MB", "peak MB\nfirst token"),
        *("peak MB\nwriting", "imports MB"),
    )
    for f in (f for f in found if f.plain):
        megabytes = {name: _own(f, name) / MEGABYTE for name in ("peak_bytes", "written_bytes")}
        drawn.add_row(
            f.name,
            *(f"{f.loading[name]:.2f}" for name in ("first_token_seconds", "load_seconds")),
            *(f"{f.loading[name]:.2f}" for name in ("tokenizer_seconds", "import_seconds")),
            f"{f.weight_bytes / MEGABYTE:,.0f}",
            *(f"{x:,.0f}" for x in megabytes.values()),
            f"{f.loading['imported_bytes'] / MEGABYTE:,.0f}",
        )
    return drawn
