"""`python -m clearhead` is the same program as `clearhead`."""

from __future__ import annotations

import sys

from clearhead.cli import main

if __name__ == "__main__":
    sys.exit(main())
