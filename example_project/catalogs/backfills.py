"""The backfill of this app: it counts the words of the messages that need a person.

The column comes with the migration 0003, and 0004 builds on it: that one waits until a pass has completed here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.conf import settings
from django.db.models import Q

from example_project.catalogs.models import Finding
from ultimat3_jobs import NO_TENANT, Run, backfill

UNCOUNTED = Q(words=None)


@backfill(
    tenant=NO_TENANT,
    source=lambda: Finding.objects.filter(UNCOUNTED),
    batch=settings.DEMO_BATCH,
    rate=50,  # a demo is not to wait; on a database that others use, begin with 5
    requires=("catalogs", "0003_finding_words"),
    count=lambda: Finding.objects.filter(UNCOUNTED).count(),
)
def count_words(run: Run, rows: list[Any]) -> None:
    """Count the words of each message."""
    by_words: defaultdict[int, list[int]] = defaultdict(list)
    for finding in rows:
        by_words[len(finding.message.split())].append(finding.pk)
    # A statement for each number: bulk_update() has a line for each row in its own, and takes ten times as long here.
    for words, keys in by_words.items():
        Finding.objects.filter(pk__in=keys).update(words=words)
