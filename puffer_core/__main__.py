"""`python -m puffer_core` is `puffer`."""

from __future__ import annotations

import sys

from puffer_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
