"""The table quotes guards as they stand: one that has been rewritten would be taken away from nowhere."""

from __future__ import annotations

from pathlib import Path

from tests.mutations.table import MUTATIONS

ROOT = Path(__file__).parent.parent.parent


def test_each_guard_stands_in_its_file_as_it_is_quoted() -> None:
    texts = {mutation.file: (ROOT / mutation.file).read_text() for mutation in MUTATIONS}
    amiss = [
        f"{mutation.file}: {mutation.guard}: {texts[mutation.file].count(mutation.old)} places, not {mutation.places}"
        for mutation in MUTATIONS
        if texts[mutation.file].count(mutation.old) != mutation.places
    ]

    assert amiss == []
