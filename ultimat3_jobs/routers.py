"""A database router: the queue in a database of its own, an outbox in every database that work is enqueued from."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from ultimat3_jobs.settings import get_settings

APP = "ultimat3_jobs"
OUTBOX = "outboxentry"


class QueueRouter:
    """Answers for the models of this app what `QUEUE_DATABASE` and `OUTBOX["DATABASES"]` say; has no opinion on others.

    Name it in `DATABASE_ROUTERS` before routers that answer for every app. With neither setting it has no opinion at
    all.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the database to read rows of a model from: that which they are written to."""
        return self.db_for_write(model, **hints)

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        """Return the queue's database; for the outbox that of the given row, or the first that has one."""
        if model._meta.app_label != APP:
            return None
        if model._meta.model_name != OUTBOX:
            return get_settings().queue_database
        outboxes = self._outboxes()
        instance = hints.get("instance")
        if isinstance(instance, model) and instance._state.db in outboxes:
            return instance._state.db
        return outboxes[0] if outboxes else None

    def allow_relation(self, first: Model, second: Model, **hints: Any) -> bool | None:
        """Allow relations within the app: its rows but those of the outbox are in one database."""
        return True if first._meta.app_label == second._meta.app_label == APP else None

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool | None:
        """Make the outbox in every database that has one, and the app's other tables in the queue's database alone."""
        if app_label != APP:
            return None
        queue, outboxes = get_settings().queue_database, self._outboxes()
        if model_name == OUTBOX:
            return db in outboxes if outboxes else None
        if model_name is None:  # an operation of no one model: it looks at what is there
            return db == queue or db in outboxes if queue and outboxes else None
        return db == queue if queue else None

    @staticmethod
    def _outboxes() -> tuple[str, ...]:
        settings = get_settings()
        return settings.outbox.databases or ((settings.queue_database,) if settings.queue_database else ())
