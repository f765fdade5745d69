"""How the learning rate goes over a run."""

from __future__ import annotations

import math

from clearhead.training.config import ScheduleConfig


def factor(config: ScheduleConfig, step: int, steps: int) -> float:
    """What the peak rate is multiplied by in step `step` (0, 1, ...) of `steps`. At most 1, and only what is asked for
    decides: a resumed run needs no memory of it.

    All kinds rise linearly along the first `warmup` steps, the first of which has 1 / warmup. A fall reaches the floor
    when the run is over, so that no step is without effect.

    - `inverse_sqrt` falls with the square root of the step (Vaswani 2017, section 5.3): the paper's rate over its peak.
    - `wsd`, warm-up, stable, decay, falls in the last `decay` of the steps (Hu 2024, MiniCPM, section 4), by 1 - sqrt
      (Hägele 2024, section 3).
    """
    number = step + 1
    if number < config.warmup:
        return number / config.warmup
    if config.kind == "constant":
        return 1.0
    if config.kind == "inverse_sqrt":
        return math.sqrt(max(1, config.warmup) / number)
    start = config.warmup
    if config.kind == "wsd":
        start = max(start, steps - round(config.decay * steps))
    share = min(1.0, max(0.0, (step - start) / max(1, steps - start)))
    fall = {
        "cosine": (1 + math.cos(math.pi * share)) / 2,
        "linear": 1 - share,
        "wsd": 1 - math.sqrt(share),
    }[config.kind]
    return config.floor + (1 - config.floor) * fall
