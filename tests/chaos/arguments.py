"""The arguments of the chaos run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

FULL = 300.0  # seconds of a whole run, in which each section must be hit
HITS = 20  # so often


def parse(arguments: Sequence[str]) -> Namespace:
    """Read them."""
    parser = ArgumentParser(prog="python -m tests.chaos", description="Kill, stop and cut workers while jobs run.")
    parser.add_argument(
        "--seconds", type=float, default=FULL, help="how long to attack; longer where too little was hit"
    )
    parser.add_argument("--workers", type=int, default=4, help="worker processes on each database")
    parser.add_argument("--seed", type=int, default=1, help="of what is chosen at random; timing stays chance")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--folder", default="", help="for files; one of its own by default")
    options = parser.parse_args(arguments)
    options.least = max(1, int(HITS * min(1, options.seconds / FULL)))
    return options
