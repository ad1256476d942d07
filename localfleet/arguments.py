"""What command lines of suites and benchmarks take."""

import argparse


def positive(text: str) -> int:
    """Read a whole number from 1 on; ArgumentTypeError for anything else."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return number
