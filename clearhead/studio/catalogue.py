"""All operations: importing this module registers them."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys

import clearhead.studio as studio
from clearhead.studio import explore, lesson

# WHILE WE BUILD: tolerant of what does not compile yet. To be plain imports.
for _package in (lesson, explore):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}.", onerror=lambda name: None):
        try:
            importlib.import_module(_module.name)
        except Exception as _error:  # noqa: BLE001, RUF100
            print(f"{_module.name}: {type(_error).__name__}: {_error}", file=sys.stderr)
for _name in ("claims", "runs_of_training", "cost"):
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(f"{studio.__name__}.{_name}")
