"""Business tables: what callers write in the transaction of an enqueue, and the effects of bodies."""

from __future__ import annotations

from django.db import models


class Organization(models.Model):
    """What a caller saves in the same transaction as the work that follows from it."""

    name = models.CharField(max_length=200, unique=True)

    def __str__(self) -> str:
        return self.name


class Effect(models.Model):
    """One line for each thing that a body did: counted by tests, so nothing here is unique."""

    label = models.CharField(max_length=200, db_index=True)
    detail = models.TextField(blank=True, default="")
    attempt = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.label} (attempt {self.attempt}, process {self.pid}) {self.detail}".rstrip()
