"""``python -m session_router`` is ``session-router``."""

import sys

from session_router.cli import main

if __name__ == "__main__":
    sys.exit(main())
