"""``python -m session_router.diagrams DIRECTORY`` writes every picture there; ``--check`` only compares."""

from __future__ import annotations

import argparse
import sys

from session_router.diagrams import PicturesMissing, check, write_all


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m session_router.diagrams", description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that differ")
    options = parser.parse_args(arguments)
    if options.check:
        wrong = check(options.directory)
        if wrong:
            print(
                f"not as the tables say: {', '.join(wrong)}; "
                f"write them anew with: python -m session_router.diagrams {options.directory}",
                file=sys.stderr,
            )
        return 1 if wrong else 0
    try:
        for path in write_all(options.directory):
            print(path)
    except (PicturesMissing, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
