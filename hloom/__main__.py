"""`python -m hloom COMMAND`, and the script `hloom`."""

from __future__ import annotations

import sys

from hloom.commands import main

if __name__ == "__main__":
    sys.exit(main())
