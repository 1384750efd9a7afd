"""What declarations and enqueues may say beside the input: each value checked where it is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from django.apps import apps
from django.core.exceptions import AppRegistryNotReady
from django.db import connections
from django.db.models import Model
from django.utils import timezone

from ultimat3_jobs.durations import Duration, format_duration, parse_duration
from ultimat3_jobs.errors import DeclarationInvalid, InputInvalid
from ultimat3_jobs.retry import Retry
from ultimat3_jobs.text import MAX_NAME, MAX_QUEUE, is_label, is_queue_name, nearest

T = TypeVar("T")


class Missing:
    """The type of what an option is that has no default and was left out."""

    def __repr__(self) -> str:
        return "<required>"


MISSING: Final = Missing()

MAX_ENQUEUED_BY = 255
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100


def check_body(body: Callable[..., Any]) -> None:
    """Refuse what a worker cannot run as a body.

    Raises:
        DeclarationInvalid: where it is no plain function.
    """
    if not inspect.isfunction(body):
        raise DeclarationInvalid(
            f"@job decorates {body!r}, which is no plain function",
            fix="put @job on a module-level def, below other decorators",
        )
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise DeclarationInvalid(
            f"the body {body.__qualname__} is a generator, which a worker does not run",
            fix=f"def {body.__name__}(run, ...):  # or async def, without yield",
        )


def job_name(name: str | None, body: Callable[..., Any]) -> str:
    """Return the durable name: the pinned one, or "<app label>.<function>".

    Raises:
        DeclarationInvalid: where none is pinned and the module belongs to no installed app, or it is too long.
    """
    if name is None:
        try:
            config = apps.get_containing_app_config(body.__module__)
        except AppRegistryNotReady:
            raise DeclarationInvalid(
                f"{body.__module__}.{body.__qualname__} is declared before the apps are loaded, so it has no name yet",
                fix="move it to the jobs.py of its app",
            ) from None
        if config is None:
            raise DeclarationInvalid(
                f"{body.__module__}.{body.__qualname__} belongs to no installed app, so it has no name that lasts",
                fix=f'pin one: @job(name="billing.{body.__name__}", ...)',
            )
        name = f"{config.label}.{body.__name__}"
    return check_name(name)


def check_name(name: object) -> str:
    """Return a job's name or alias, checked: text of 1 to 200 printable characters, without spaces around it."""
    if not is_label(name, MAX_NAME):
        raise DeclarationInvalid(
            f"{name!r} cannot be a job's name",
            fix=f'name="billing.invoice"  # 1 to {MAX_NAME} printable characters, no space around them',
        )
    return name


def check_aliases(aliases: object) -> tuple[str, ...]:
    """Return earlier names, checked."""
    if isinstance(aliases, str) or not isinstance(aliases, Sequence):
        raise DeclarationInvalid(f"aliases={aliases!r} is no list of names", fix='aliases=["billing.old_name"]')
    return tuple(check_name(alias) for alias in aliases)


def check_queue(queue: object) -> str:
    """Return a queue's name, checked: text of 1 to 100 printable characters without a comma."""
    if not is_queue_name(queue):
        raise DeclarationInvalid(
            f"{queue!r} cannot be a queue's name",
            fix=f'queue="slow"  # 1 to {MAX_QUEUE} printable characters, no comma, no space around them',
        )
    return queue


def check_database(database: object) -> str:
    """Return the alias of a database, checked: one of DATABASES."""
    if isinstance(database, str) and database in connections.databases:
        return database
    raise DeclarationInvalid(
        f"database={database!r} is no alias of DATABASES, which has {', '.join(connections.databases)}",
        fix=f"database={nearest(database, connections.databases) or next(iter(connections.databases))!r}",
    )


def check_priority(priority: object) -> int:
    """Return a priority, checked: a whole number from -100 to 100."""
    if isinstance(priority, int) and not isinstance(priority, bool) and LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        return int(priority)
    raise DeclarationInvalid(
        f"priority={priority!r} is no whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}", fix="priority=0"
    )


def check_retry(retry: object) -> Retry:
    """Return a retry policy, checked; the default one for None."""
    if retry is None:
        return Retry()
    if not isinstance(retry, Retry):
        raise DeclarationInvalid(f"retry={retry!r} is no Retry", fix="retry=Retry(attempts=3)")
    return retry


def check_atomic(atomic: object, body: Callable[..., Any]) -> bool:
    """Return whether body and ack share a transaction, checked: no `async def`, since Django's are of one thread."""
    if not isinstance(atomic, bool):
        raise DeclarationInvalid(f"atomic={atomic!r} is neither True nor False", fix="atomic=True")
    if atomic and inspect.iscoroutinefunction(body):
        raise DeclarationInvalid(
            f"the body {body.__qualname__} is an async def, and Django has no transaction that a coroutine can be in",
            fix=f"def {body.__name__}(run, ...):  # or leave atomic=True out",
        )
    return atomic


def check_dedupe_for(value: Duration | None) -> timedelta | None:
    """Return for how long a done job holds its key, checked: more than nothing."""
    return None if value is None else check_positive_duration("dedupe_for", value, example="24h")


def check_positive_duration(name: str, value: Duration, *, example: str) -> timedelta:
    """Return the length of time that an option says, checked: more than nothing.

    Args:
        name: of the option.
        value: what it says.
        example: a length that would do, for the fix.
    """
    length = _duration(name, value)
    if length <= timedelta(0):
        raise DeclarationInvalid(f"{name}={value!r} is no positive length of time", fix=f'{name}="{example}"')
    return length


def check_limits(
    timeout: Duration | None, step_timeout: Duration | None, *, part: str = "step_timeout"
) -> tuple[timedelta | None, timedelta | None]:
    """Return how long an attempt and a step of it may take, checked: a step is no longer than its attempt.

    Args:
        timeout: of the attempt.
        step_timeout: of a step.
        part: the name of that option.
    """
    attempt = None if timeout is None else check_positive_duration("timeout", timeout, example="5m")
    step = None if step_timeout is None else check_positive_duration(part, step_timeout, example="1m")
    if attempt is not None and step is not None and step > attempt:
        both = format_duration(attempt)
        raise DeclarationInvalid(
            f"{part}={step_timeout!r} is longer than timeout={timeout!r}, which ends the attempt before it",
            fix=f'timeout="{both}", {part}="{both}"  # or less, or a longer timeout',
        )
    return attempt, step


def one_of(name: str, value: T, allowed: Sequence[T]) -> T:
    """Return `value` where it is one of the allowed ones."""
    if value not in allowed:
        wanted = " or ".join(repr(one) for one in allowed)
        raise DeclarationInvalid(f"{name}={value!r} is not {wanted}", fix=f"{name}={allowed[0]!r}")
    return value


def parse_run_after(value: datetime | Duration) -> tuple[datetime | None, timedelta]:
    """Return the moment or the delay that `run_after` names; the other is None or zero.

    Raises:
        DeclarationInvalid: where it is neither, or a negative delay.
    """
    if isinstance(value, datetime):
        try:
            moment = value if timezone.is_aware(value) else timezone.make_aware(value)
            return moment.astimezone(UTC), timedelta(0)
        except (OverflowError, ValueError) as error:
            raise DeclarationInvalid(f"run_after={value!r} is no moment: {error}", fix='run_after="1h"') from None
    length = _duration("run_after", value)
    if length < timedelta(0):
        raise DeclarationInvalid(f"run_after={value!r} is a negative delay", fix='run_after="0s"')
    return None, length


def attribution(user: object) -> str:
    """Return who asked for work as text: "auth.user:7" for a model instance.

    Raises:
        InputInvalid: where it is neither a saved instance nor text of 1 to 255 printable characters.
    """
    if isinstance(user, Model):  # request.user too, a lazy object that pretends to be one
        if user.pk is None:
            raise InputInvalid(
                f"the value at `enqueued_by` is an unsaved {user._meta.label_lower}, which has no name yet",
                fix="save() it first",
            )
        user = f"{user._meta.label_lower}:{user.pk}"
    if not isinstance(user, str):
        raise InputInvalid(
            f"the value at `enqueued_by` is of type {user.__class__.__name__}, neither a model instance nor text",
            fix="on_behalf_of(request.user)  # of a user who is logged in",
        )
    if not is_label(user, MAX_ENQUEUED_BY):
        raise InputInvalid(
            f"the value at `enqueued_by` is {len(user)} characters of text that cannot name who asked",
            fix=f'on_behalf_of("import of 3 May")  # 1 to {MAX_ENQUEUED_BY} printable characters, no space around them',
        )
    return str.__str__(user)


def _duration(name: str, value: Duration) -> timedelta:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise DeclarationInvalid(f"{name}={value!r}: {error}", fix=f'{name}="1h"') from None
