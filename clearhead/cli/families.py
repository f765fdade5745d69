"""`clearhead families`: the published architectures that can be loaded, from the registry."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    json: bool = False
    """Print the same as JSON, with the published classes of each family."""


def run(options: Options) -> None:
    from clearhead.cli import console

    console.import_torch()
    from clearhead.families import FAMILIES
    from clearhead.families.summary import counts, summarise

    rows = [summarise(family) for family in FAMILIES.values()]
    if options.json:
        classes = [{"classes": family.architectures} for family in FAMILIES.values()]
        listed = [asdict(row) | more for row, more in zip(rows, classes, strict=True)]
        console.print_json({"families": listed, "counts": counts(rows)})
        return
    from clearhead.costs.units import columns

    names = ("family", "kind", "reads", "positions", "norm", "mixer", "feed-forward", "formats")
    cells = [(r.family, r.kind, r.reads, r.positions, r.norm, r.mixer, r.feed_forward, r.formats) for r in rows]
    print("\n".join(columns([names, *cells])))
    found = counts(rows)
    total = found.pop("families")
    print(f"\n{total} families: " + ", ".join(f"{n} {name}" for name, n in found.items()))
