"""What the scans wrote down: a row for each catalog, and one for each message that needs a person."""

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

    class Meta:
        ordering: ClassVar[list[str]] = ["catalog_id", "line"]

    def __str__(self) -> str:
        return f"{self.catalog_id}:{self.line} {self.problem}"
