"""``python -m session_router.diagrams DIRECTORY`` writes every picture there; ``--check`` only compares."""

from __future__ import annotations

import argparse
import sys

from session_router.diagrams import PicturesMissing, check, left_over, write_all


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m session_router.diagrams", description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that differ")
    options = parser.parse_args(arguments)
    if options.check:
        wrong, extra = check(options.directory), left_over(options.directory)
        if stale := [name for name in wrong if name not in extra]:
            print(
                f"not as the tables say: {', '.join(stale)}; "
                f"write them anew with: python -m session_router.diagrams {options.directory}",
                file=sys.stderr,
            )
        if extra:
            print(f"of no machine any more: {', '.join(extra)}; remove them", file=sys.stderr)
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
