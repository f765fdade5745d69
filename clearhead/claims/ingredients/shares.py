"""The share of trials that came out right, with its interval."""

from __future__ import annotations

import math

Z_95 = 1.959964


def wilson(n_right: float, n: int) -> tuple[float, float, float]:
    """The share, and the ends of Wilson's 95 % interval (1927), which stays within 0 and 1 and has a width at both."""
    share, z2 = n_right / n, Z_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n**2))
    return share, min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))
