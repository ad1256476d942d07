"""Compare what is recorded with what is made now, or record it anew: python -m tests.golden [--update] [NAME …]."""

import argparse
import sys

from tests.golden.recording import RECORDED, Subject, difference, subjects, update


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the files instead of comparing them")
    parser.add_argument("--list", action="store_true", help="print the names of the subjects")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a subject, or the beginning of several")
    wish = parser.parse_args()
    chosen = [each for each in subjects() if not wish.names or each.name.startswith(tuple(wish.names))]
    if not chosen:
        parser.error(f"there is no subject {' or '.join(wish.names)}; --list prints them")
    if wish.list:
        _say("\n".join(each.name for each in chosen))
        return 0
    if wish.update:
        _update(chosen, is_whole=not wish.names)
        return 0
    differing = [shown for each in chosen if (shown := difference(each))]
    _say("\n".join(differing) or f"{len(chosen)} subjects are as recorded")
    return 1 if differing else 0


def _update(chosen: list[Subject], *, is_whole: bool) -> None:
    kept: set[str] = set()
    for subject in chosen:
        for path in update(subject):
            _say(f"recorded {path}")
        kept |= set(subject.make()) if is_whole else set()
    if is_whole:
        for file in sorted(RECORDED.rglob("*")):
            if file.is_file() and file.relative_to(RECORDED).as_posix() not in kept:
                file.unlink()
                _say(f"removed {file.relative_to(RECORDED)}: no subject makes it")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
