"""What is looked up in chapter 2: the weather that a wind brings, by where it blows from. Set by hand."""

from __future__ import annotations

KEYS = {
    "north": (0.0, 1.0),
    "east": (1.0, 0.0),
    "south": (0.0, -1.0),
    "west": (-1.0, 0.0),
    "north-west": (-0.7071, 0.7071),
}
"""Where a wind comes from: to the right is east, and up is north."""
VALUES = {
    "north": (4.0, 2.0),
    "east": (12.0, 1.0),
    "south": (26.0, 4.0),
    "west": (16.0, 14.0),
    "north-west": (8.0, 10.0),
}
"""What weather it brings: degrees, and millimetres of rain."""
