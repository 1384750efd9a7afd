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
