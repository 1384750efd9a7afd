"""What the jobs wrote down: catalogs and what a scan found in them, and what was published of some."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Catalog(models.Model):
    """A message catalog as its latest scan found it."""

    # Names the file wherever it is installed, such as django/contrib/auth/locale/eo/LC_MESSAGES/django.po.
    path = models.CharField(max_length=150, unique=True)
    group = models.CharField(max_length=50, db_index=True)
    language = models.CharField(max_length=20, db_index=True)
    # SHA-256 of the bytes that were scanned: as long as the file has it, there is nothing to scan.
    checksum = models.CharField(max_length=64)
    total = models.PositiveIntegerField(default=0)
    translated = models.PositiveIntegerField(default=0)
    fuzzy = models.PositiveIntegerField(default=0)
    untranslated = models.PositiveIntegerField(default=0)

    class Meta:
        ordering: ClassVar[list[str]] = ["path"]

    def __str__(self) -> str:
        return self.path


class Problem(models.TextChoices):
    """Why a message needs a person."""

    UNTRANSLATED = "untranslated", "not translated"
    FUZZY = "fuzzy", "translated by guess"
    PLACEHOLDER = "placeholder", "asks for a value that the original does not give"


class Finding(models.Model):
    """A message that needs a person."""

    catalog = models.ForeignKey(Catalog, on_delete=models.CASCADE, related_name="findings")
    line = models.PositiveIntegerField()
    problem = models.CharField(max_length=20, choices=Problem.choices)
    context = models.TextField(blank=True)
    message = models.TextField()
    # How much there is to translate. The scans leave it empty, as they did before there was such a column: it is filled
    # by the backfill in backfills.py.
    words = models.PositiveIntegerField(null=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["catalog_id", "line"]
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["words"], name="catalogs_finding_words")]

    def __str__(self) -> str:
        return f"{self.catalog_id}:{self.line} {self.problem}"


class EntryState(models.TextChoices):
    """How far a message is."""

    TRANSLATED = "translated"
    FUZZY = "fuzzy", "translated by guess"
    UNTRANSLATED = "untranslated", "not translated"


class Entry(models.Model):
    """A message of a catalog that is published, with its translation."""

    catalog = models.ForeignKey(Catalog, on_delete=models.CASCADE, related_name="entries")
    msgctxt = models.TextField(blank=True)
    msgid = models.TextField()
    msgstr = models.TextField(blank=True)  # one form a line where the translation depends on a number
    state = models.CharField(max_length=20, choices=EntryState.choices)

    class Meta:
        ordering: ClassVar[list[str]] = ["catalog_id", "id"]
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.catalog_id}: {self.msgid[:60]}"


class Publication(models.Model):
    """That a catalog was published with what was in it then.

    No constraint forbids a second row of the same content: that there is none is the doing of the job alone.
    """

    path = models.CharField(max_length=150, db_index=True)
    checksum = models.CharField(max_length=64)
    entries = models.PositiveIntegerField()
    translated = models.PositiveIntegerField()
    reviewed_by = models.CharField(max_length=100)

    class Meta:
        ordering: ClassVar[list[str]] = ["path", "id"]

    def __str__(self) -> str:
        return f"{self.path} ({self.reviewed_by})"
