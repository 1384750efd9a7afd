"""The jobs of this app: one scans a catalog, the other publishes it."""

from __future__ import annotations

from django.db import transaction

from example_project.catalogs.models import Catalog, Finding
from example_project.catalogs.parsing import NotACatalog, Reading, read_catalog
from example_project.catalogs.pipeline import publish_catalog
from example_project.catalogs.sources import language_of, locate
from ultimat3_jobs import Retry, Run, job

__all__ = ["SCAN_KEY", "publish_catalog", "scan_catalog", "write_down"]

SCAN_KEY = "scan:{path}:{checksum}"
"""A catalog is scanned once for what is in it: a file that changes has another checksum and another key."""


@job(
    idempotency_key=SCAN_KEY,
    tenant="group",
    retry=Retry(attempts=3, delay="2s", terminal=(NotACatalog,)),
)
def scan_catalog(run: Run, group: str, path: str, checksum: str) -> dict[str, int]:
    """Read a catalog and write down how much of it is translated, and what is not.

    It may run again at any time, also beside itself, and leaves the same rows: the counts and the findings
    change in one transaction, and only for content that is not written down yet.

    Args:
        run: the run.
        group: the part of Django that the catalog belongs to; the job's tenant.
        path: the catalog, as `sources` names it.
        checksum: of the content that was there when the scan was asked for. Only the key reads it: what is
            written down is what the file says now.
    """
    reading = read_catalog(locate(path), path)
    write_down(group, path, reading)
    run.logger.info("%s: %d of %d translated", path, reading.translated, reading.total)
    return {"total": reading.total, "translated": reading.translated, "findings": len(reading.messages)}


def write_down(group: str, path: str, reading: Reading) -> bool:
    """Store a reading in one transaction; return whether it was news."""
    values = {
        "group": group,
        "language": language_of(path),
        "checksum": reading.checksum,
        "total": reading.total,
        "translated": reading.translated,
        "fuzzy": reading.fuzzy,
        "untranslated": reading.untranslated,
    }
    with transaction.atomic():
        # The row is locked from here on, so that two runs of one catalog take turns.
        catalog, created = Catalog.objects.select_for_update().get_or_create(path=path, defaults=values)
        if not created:
            if catalog.checksum == reading.checksum:
                return False
            Catalog.objects.filter(pk=catalog.pk).update(**values)
            catalog.findings.all().delete()
        Finding.objects.bulk_create(
            Finding(
                catalog=catalog,
                line=message.line,
                problem=message.problem,
                context=message.context,
                message=message.text,
            )
            for message in reading.messages
        )
    return True
