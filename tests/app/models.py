"""Business tables: what callers write in the transaction of an enqueue, and the effects of bodies."""

from __future__ import annotations

from uuid import uuid4

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


class Item(models.Model):
    """A row to sweep: how often it was handled, and by whom it was edited meanwhile."""

    number = models.IntegerField(default=0, db_index=True)
    handled = models.IntegerField(default=0)
    note = models.CharField(max_length=200, default="")

    def __str__(self) -> str:
        return f"item {self.pk} ({self.number}), handled {self.handled} times"


class Token(models.Model):
    """A row whose key is random."""

    id = models.UUIDField(primary_key=True, default=uuid4)
    handled = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"token {self.pk}, handled {self.handled} times"


class Cell(models.Model):
    """A row whose key is of two columns."""

    pk = models.CompositePrimaryKey("sheet", "place")
    sheet = models.CharField(max_length=20)
    place = models.IntegerField()
    handled = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"cell {self.sheet}!{self.place}, handled {self.handled} times"


class Place(models.Model):
    """A row whose other part is in another table."""

    name = models.CharField(max_length=200)
    handled = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Restaurant(Place):
    """The other part of a place."""

    stars = models.IntegerField(default=0)
    owner = models.ForeignKey(Organization, null=True, on_delete=models.CASCADE)
