"""Who did something to a job or a pass, and why, in the words that every surface uses."""

from __future__ import annotations


def by(who: str) -> str:
    """Return " by ann"; empty where nobody is known."""
    return f" by {who}" if who else ""


def by_and_why(who: str, reason: str) -> str:
    """Return " by ann: too hot", as the end of what was done."""
    return f"{by(who)}: {reason or 'no reason was given'}"
