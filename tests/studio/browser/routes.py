"""Every page of the Studio, as the browser tests go through them."""

from __future__ import annotations

LESSON = (
    "/learn/1-recurrence",
    "/learn/2-lookup",
    "/learn/3-attention",
    "/learn/4-heads",
    "/learn/5-position",
    "/learn/6-block",
    "/learn/7-masks",
    "/learn/8-scale",
    "/learn/check",
    "/learn/papers",
)
VIEWS = tuple(
    f"/explore/clear-gpt/{view}"
    for view in ("attention", "predict", "lens", "heads", "ablate", "patch", "generate", "shapes")
)
OTHERS = ("/", "/compare", "/cost", "/claims", "/claims/ten-words", "/runs", "/nowhere")
FAMILIES = (
    "/explore/clear-translate/attention",
    "/explore/clear-vit/attention",
    "/explore/clear-bert/predict",
    "/explore/clear-2l/heads",
)
"""Pages of models that are not decoders of text alone."""
ALL = (*LESSON, *VIEWS, *OTHERS, *FAMILIES)
