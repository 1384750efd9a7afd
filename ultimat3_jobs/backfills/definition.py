"""What a declaration says of a backfill beside what any job says: one frozen value, checked when it is declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ultimat3_jobs.errors import DeclarationInvalid
from ultimat3_jobs.settings import MAX_LABEL
from ultimat3_jobs.text import MAX_NAME, is_label

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.signals import Signal
    from ultimat3_jobs.backfills.windows import Window

Batch = int | Literal["auto"]


@dataclass(frozen=True, eq=False)
class BackfillDefinition:
    """How the rows of a backfill are found and swept."""

    name: str
    aliases: tuple[str, ...]
    """Earlier names, under which the ledger may have a completed pass."""
    handler: Callable[..., Any]
    """Called with the run and the rows of a page (a list of model instances)."""
    source: Callable[[], Any]
    """Gives the queryset of the rows to sweep."""
    batch: Batch
    """Rows a page at most; "auto" is tuned to the time that a page takes."""
    rate: float
    """Pages a second at most."""
    throttle: Callable[[], Any] | None
    """Asked before a page whether to wait."""
    signals: tuple[Signal, ...]
    """Built-in reasons to wait."""
    window: Window | None
    """Hours in which it may sweep, in the project's time zone; None: always."""
    requires: tuple[str, str] | None
    """App label and name of the migration that must be applied."""
    environments: tuple[str, ...] | None
    """Names of the environments that it is meant for; None: all."""
    count: Callable[[], Any] | None
    """Counts the rows that are left; it must answer 0 after the last page."""
    lock: bool
    """Whether the rows of a page are locked."""
    atomic: bool
    """Whether a page and the cursor commit together where the rows are in the queue's database."""
    exclusive: bool
    """Whether it waits for another pass over the same table to end."""

    def describe(self) -> dict[str, object]:
        """Return the declaration as plain JSON values."""
        return {
            "batch": self.batch,
            "rate": self.rate,
            "throttle": self.throttle is not None,
            "signals": [repr(one) for one in self.signals],
            "window": None if self.window is None else str(self.window),
            "requires": None if self.requires is None else list(self.requires),
            "environments": None if self.environments is None else sorted(self.environments),
            "count": self.count is not None,
            "lock": self.lock,
            "atomic": self.atomic,
            "exclusive": self.exclusive,
        }


def check_handler(handler: Callable[..., Any]) -> None:
    """Refuse what cannot be called with a run and the rows of a page."""
    if inspect.iscoroutinefunction(handler):
        raise DeclarationInvalid(
            f"the handler {handler.__qualname__} is an async def, and Django has no transaction for coroutines",
            fix=f"def {handler.__name__}(run, rows):",
        )
    try:
        inspect.signature(handler).bind(None, None)
    except TypeError as error:
        raise DeclarationInvalid(
            f"the handler {handler.__qualname__} cannot be called with a run and rows: {error}",
            fix=f"def {handler.__name__}(run, rows):",
        ) from None


def check_callable(name: str, value: object, *, example: str) -> Callable[[], Any]:
    """Return what is called without arguments, checked: a plain callable.

    Args:
        name: of the option.
        value: what it says.
        example: one that would do, for the fix.
    """
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise DeclarationInvalid(f"{name}={value!r} is no plain function", fix=f"{name}={example}")
    try:
        inspect.signature(value).bind()
    except TypeError as error:
        raise DeclarationInvalid(
            f"{name}={value!r} cannot be called without arguments: {error}", fix=f"{name}={example}"
        ) from None
    except ValueError:  # a callable that has no signature to look at
        pass
    return value


def check_requires(value: object) -> tuple[str, str] | None:
    """Return the migration that must be applied, checked: an app label and a name."""
    if value is None:
        return None
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:  # noqa: PLR2004 - a pair
        app, name = value
        if is_label(app, MAX_NAME) and is_label(name, MAX_NAME):
            return app, name
    raise DeclarationInvalid(
        f"requires={value!r} is no app label and name of a migration", fix='requires=("blog", "0007_post_slug")'
    )


def check_environments(value: object) -> tuple[str, ...] | None:
    """Return the names of environments, checked: at least one where any are given."""
    if value is None:
        return None
    names = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    if names and all(is_label(one, MAX_LABEL) for one in names):
        return tuple(names)
    raise DeclarationInvalid(
        f"environments={value!r} is no list of names of environments", fix='environments=["staging", "production"]'
    )


def check_flag(name: str, value: object) -> bool:
    """Return an option that is either true or false, checked."""
    if not isinstance(value, bool):
        raise DeclarationInvalid(f"{name}={value!r} is neither True nor False", fix=f"{name}=True")
    return value
