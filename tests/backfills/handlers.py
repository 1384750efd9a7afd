"""A handler that uses much of the language, with a checksum that is written down."""

from __future__ import annotations

from typing import Any


def rich(run: Any, rows: list[Any], *, limit: int = 10, **more: Any) -> None:
    """Not in the checksum."""
    # Neither is this.
    total, names = 0, {*()}
    for row in rows:
        match row.label:
            case "a" | "b" if (length := len(row.label)) > 0:
                total += length
            case {"x": [1, *rest], **others}:
                names |= {f"{rest!r:>{limit}} and {others}", "naïve \u1fae0 é", b"\x00".hex()}
            case None:
                continue
            case _:
                raise ValueError(f"{row.label}: {total:,} of {limit:}")

    class Inner(dict):
        """Not in the checksum either."""

        kind: str = u"plain"  # fmt: skip # noqa: UP025 - the prefix is not in the checksum

        @staticmethod
        async def soon(*parts: Any) -> Any:
            async with parts[0] as opened, parts[1]:
                return [part async for part in opened if not part]

    try:
        del row, names
        more["sorted"] = sorted(rows, key=lambda row: (-row.pk, 1.5e300, 2j, ..., 0xFF))[:-1]
    except* (KeyError, TypeError) as errors:
        print(
            *errors.exceptions,
            sep="""
 two lines""",
        )
    finally:
        more = {**more, "id": 10**3 if total else ~total}
    assert Inner, "it is there"
