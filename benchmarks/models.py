"""What the bodies of the benchmarks write."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Line(models.Model):
    """One row of a business."""

    number = models.IntegerField()
    objects: ClassVar[models.Manager[Line]] = models.Manager()

    def __str__(self) -> str:
        return str(self.number)


class Post(models.Model):
    """One row of a table that is swept."""

    title = models.CharField(max_length=100)
    slug = models.CharField(max_length=100, default="")
    marked = models.BooleanField(default=False)
    objects: ClassVar[models.Manager[Post]] = models.Manager()

    def __str__(self) -> str:
        return self.title
