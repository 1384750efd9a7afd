"""Three catalogs that the demo breaks: one is mended in time, one never can be, one simply is not."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from example_project.catalogs.jobs import SCAN_KEY, scan_catalog
from example_project.catalogs.sources import Source, checksum_of, locate
from ultimat3_jobs.models import Job
from ultimat3_jobs.states import LIVE, State

GROUP = "demo"

WHOLE = """\
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: qaa\\n"

msgid "The kettle is on."
msgstr "Ketolo staras."

msgid "%(count)s cups are clean."
msgstr ""
"""
# What a reader sees while somebody is still writing the file: it ends inside a keyword.
CUT = WHOLE[: WHOLE.index('str "Ketolo')]
# A compiled catalog under the name of a source: the first bytes are those of its format.
COMPILED = bytes.fromhex("de120495000000000200000000000000")


@dataclass(frozen=True, slots=True)
class Broken:
    """A catalog that is broken on purpose."""

    kind: str
    path: str
    content: bytes

    @property
    def source(self) -> Source:
        """The catalog as the scan is asked to read it."""
        return Source(self.path, GROUP, checksum_of(self.content))

    @property
    def key(self) -> str:
        """The key of its job."""
        return SCAN_KEY.format(path=self.path, checksum=self.source.checksum)


MENDED = Broken("mended", "demo/locale/qaa/LC_MESSAGES/half-written.po", CUT.encode())
TERMINAL = Broken("terminal", "demo/locale/qaa/LC_MESSAGES/compiled.po", COMPILED)
EXHAUSTED = Broken("exhausted", "demo/locale/qaa/LC_MESSAGES/torn.po", CUT.encode())
ALL = (MENDED, TERMINAL, EXHAUSTED)


def write_files() -> None:
    """Write all of them, broken."""
    for broken in ALL:
        _write(broken.path, broken.content)


def restore_files() -> None:
    """Write again those that are gone although a job is still to read them."""
    for broken in ALL:
        if not locate(broken.path).exists() and _rows(broken).filter(state__in=LIVE).exists():
            _write(broken.path, broken.content)


def mend_between_attempts() -> bool:
    """Mend the half-written catalog once an attempt at it is over; return whether it was mended by this call.

    The job's body knows nothing of this. It reads what is there, as it does with a file that a person mends.
    """
    row = _rows(MENDED).first()
    if row is None or row.state not in LIVE:
        return False
    tried = row.attempt > 1 if row.state == State.RUNNING else row.attempt > 0
    if not tried or locate(MENDED.path).read_bytes() != MENDED.content:
        return False
    _write(MENDED.path, WHOLE.encode())
    return True


def outcome_of(broken: Broken) -> Job | None:
    """Return the latest job that was to read it."""
    return _rows(broken).first()


def _rows(broken: Broken) -> QuerySet[Job]:
    rows = Job.objects.filter(name=scan_catalog.name, tenant_id=GROUP, idempotency_key=broken.key)
    return rows.order_by("-id")


def _write(path: str, content: bytes) -> None:
    """Put a file in place in one piece: a reader sees the old one or the new one."""
    file = locate(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(file)
