"""What a declaration and an enqueue may say beside the input."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.utils import timezone as django_timezone
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from tests.declaring import error_of, job_taking, refused, refused_inside
from ultimat3_jobs import NO_TENANT, Job, Retry, job
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry

pytestmark = pytest.mark.usefixtures("isolated_registry")

DECLARATION, INPUT = "X_JOB_DECLARATION_INVALID", "X_JOB_INPUT_INVALID"


class Urgency(IntEnum):
    HIGH = 50


def declare(**options: Any) -> Job[[], None]:
    def body(run: Any) -> None: ...

    return job(**{"name": "tests.body", "idempotency_key": "key", "tenant": NO_TENANT} | options)(body)


PRIORITY = "priority={0!r} is no whole number from -100 to 100"
QUEUE = "{0!r} cannot be a queue's name"

BAD_EITHER_WAY = [
    # Refused in a declaration and in using() alike.
    *[({"priority": bad}, PRIORITY.format(bad), "priority=0") for bad in (-101, 101, 1.0, "5", True, math.nan, [])],
    *[
        ({"queue": bad}, QUEUE.format(bad), 'queue="slow"  # 1 to 100 printable characters, no comma')
        for bad in ("", " ", " slow", "slow ", "a,b", "a\nb", "a\0b", "a\ud800", "x" * 101, 5, b"slow")
    ],
]

BAD_DECLARATIONS: list[tuple[dict[str, Any], str, str]] = [
    *BAD_EITHER_WAY,
    ({"retry": 5}, "retry=5 is no Retry", "retry=Retry(attempts=3)"),
    *[
        ({name: bad}, f"{name}={bad!r} is no positive length of time", f'{name}="{example}"')
        for name, example in (("timeout", "5m"), ("step_timeout", "1m"), ("event_poll", "30s"))
        for bad in ("0s", -1)
    ],
    ({"timeout": "soon"}, "timeout='soon': ", 'timeout="1h"'),
    ({"event_poll": None}, "event_poll=None: ", 'event_poll="1h"'),
    (
        {"timeout": "1m", "step_timeout": 61},
        "step_timeout=61 is longer than timeout='1m', which ends the attempt before it",
        'timeout="1m", step_timeout="1m"  # or less',
    ),
    ({"dedupe_for": "0s"}, "dedupe_for='0s' is no positive length of time", 'dedupe_for="24h"'),
    ({"dedupe_for": -1}, "dedupe_for=-1 is no positive length of time", 'dedupe_for="24h"'),
    ({"dedupe_for": "soon"}, "dedupe_for='soon': ", 'dedupe_for="1h"'),
    ({"dedupe_for": math.nan}, "dedupe_for=nan: ", 'dedupe_for="1h"'),
    ({"dedupe_for": "101000d"}, "dedupe_for='101000d': ", 'dedupe_for="1h"'),
    ({"dedupe_for": True}, "dedupe_for=True: ", 'dedupe_for="1h"'),
    ({"while_running": "wait"}, "while_running='wait' is not 'join' or 'again'", "while_running='join'"),
    ({"while_running": None}, "while_running=None is not 'join' or 'again'", "while_running='join'"),
    ({"on_key_reuse": "join"}, "on_key_reuse='join' is not 'error' or 'warn'", "on_key_reuse='error'"),
    ({"on_key_reuse": []}, "on_key_reuse=[] is not 'error' or 'warn'", "on_key_reuse='error'"),
]

BAD_USES: list[tuple[dict[str, Any], str, str]] = [
    *BAD_EITHER_WAY,
    ({"run_after": -1}, "run_after=-1 is a negative delay", 'run_after="0s"'),
    ({"run_after": timedelta(microseconds=-1)}, "run_after=datetime.timedelta(days=-1", 'run_after="0s"'),
    ({"run_after": math.nan}, "run_after=nan: ", 'run_after="1h"'),
    ({"run_after": math.inf}, "run_after=inf: ", 'run_after="1h"'),
    ({"run_after": "soon"}, "run_after='soon': ", 'run_after="1h"'),
    ({"run_after": True}, "run_after=True: ", 'run_after="1h"'),
    ({"run_after": date(2026, 5, 3)}, "run_after=datetime.date(2026, 5, 3): ", 'run_after="1h"'),
    ({"run_after": 10**12}, "run_after=1000000000000: ", 'run_after="1h"'),
    (
        {"run_after": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))},
        "run_after=datetime.datetime(9999, 12, 31, 23, 59, 59, 999999",
        'run_after="1h"',
    ),
    ({"on_conflict": "ignore"}, "on_conflict='ignore' is not 'join' or 'error'", "on_conflict='join'"),
]


@pytest.mark.parametrize(("options", "cause", "fix"), BAD_DECLARATIONS, ids=str)
def test_a_bad_option_is_refused_when_declared(options: dict[str, Any], cause: str, fix: str) -> None:
    error = error_of(DECLARATION, lambda: declare(**options))

    assert error.cause.startswith(cause)
    assert error.fix.startswith(fix)


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(("options", "cause", "fix"), BAD_USES, ids=str)
def test_a_bad_option_is_refused_at_the_enqueue(options: dict[str, Any], cause: str, fix: str) -> None:
    handle = declare()

    for refusal in (refused, refused_inside):
        error = refusal(DECLARATION, lambda: handle.using(**options).enqueue())
        assert error.cause.startswith(cause)
        assert error.fix.startswith(fix)


def requested(handle: Job[[], None]) -> Any:
    return handle.call().request


def test_what_is_declared_is_asked_for() -> None:
    plain, full = declare(), declare(queue="slow", priority=-100, retry=Retry(attempts=7), dedupe_for="24h")

    request = requested(plain)
    assert (request.queue, request.priority, request.max_attempts, request.dedupe_for) == ("default", 0, 3, None)
    request = requested(full)
    assert (request.queue, request.priority, request.max_attempts, request.dedupe_for) == ("slow", -100, 7, 86400.0)


def test_the_default_queue_is_that_of_the_settings(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"DEFAULT_QUEUE": "bulk"}

    assert requested(declare()).queue == "bulk"
    assert requested(declare(queue="slow")).queue == "slow"
    assert requested(declare().using(queue="fast")).queue == "fast"


@pytest.mark.parametrize("priority", [-100, 0, 100, Urgency.HIGH])
def test_priorities_within_the_bounds_are_taken(priority: int) -> None:
    for request in (requested(declare(priority=priority)), requested(declare().using(priority=priority))):
        assert request.priority == int(priority)
        assert type(request.priority) is int


def test_using_adds_to_a_new_handle_and_leaves_the_old_one_alone() -> None:
    handle = declare(priority=1, queue="a")
    urgent = handle.using(priority=5)
    late = urgent.using(run_after="1h").on_behalf_of("import")
    other = late.using(queue="b", on_conflict="error")

    def seen(one: Job[[], None]) -> tuple[Any, ...]:
        call = one.call()
        return (
            call.request.priority,
            call.request.queue,
            call.request.delay,
            call.request.enqueued_by,
            call.on_conflict,
        )

    assert seen(handle) == (1, "a", 0.0, "", "join")
    assert seen(urgent) == (5, "a", 0.0, "", "join")
    assert seen(late) == (5, "a", 3600.0, "import", "join")
    assert seen(other) == (5, "b", 3600.0, "import", "error")
    assert seen(other.using()) == seen(other)
    assert handle.definition is other.definition


def test_a_later_moment_replaces_an_earlier_delay_and_the_other_way_round() -> None:
    moment = datetime(2126, 5, 3, tzinfo=UTC)

    request = requested(declare().using(run_after="1h").using(run_after=moment))
    assert (request.run_at, request.delay) == (moment, 0.0)
    request = requested(declare().using(run_after=moment).using(run_after="1h"))
    assert (request.run_at, request.delay) == (None, 3600.0)


@pytest.mark.parametrize(
    ("zone", "given", "moment"),
    [
        ("UTC", datetime(2126, 5, 3, 12), datetime(2126, 5, 3, 12, tzinfo=UTC)),
        ("America/Bogota", datetime(2126, 5, 3, 12), datetime(2126, 5, 3, 17, tzinfo=UTC)),
        ("America/Bogota", datetime(2126, 5, 3, 12, tzinfo=UTC), datetime(2126, 5, 3, 12, tzinfo=UTC)),
        ("UTC", datetime(2126, 5, 3, tzinfo=timezone(timedelta(hours=2))), datetime(2126, 5, 2, 22, tzinfo=UTC)),
        ("UTC", datetime(300, 1, 1, tzinfo=UTC), datetime(300, 1, 1, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.usefixtures("outside")
def test_a_moment_is_the_same_instant_in_the_row(
    settings: Any, use_tz: bool, zone: str, given: datetime, moment: datetime
) -> None:
    settings.USE_TZ, settings.TIME_ZONE = use_tz, zone
    with django_timezone.override(zone):
        declare().using(run_after=given).enqueue()

    row = JobRow.objects.get()
    assert row.run_at == moment
    assert row.state == ("delayed" if moment.year > 2026 else "ready")


@pytest.mark.parametrize(
    ("delay", "state"),
    [("1h", "delayed"), (0.5e-6, "ready"), (timedelta(days=36_500), "delayed"), ("0s", "ready"), (0, "ready")],
)
@pytest.mark.usefixtures("outside")
def test_a_delay_counts_from_the_databases_clock(delay: Any, state: str) -> None:
    declare().using(run_after=delay).enqueue()

    row = JobRow.objects.get()
    assert row.state == state
    waits = {"1h": timedelta(hours=1)}.get(delay, delay if isinstance(delay, timedelta) else timedelta(0))
    assert abs(row.run_at - row.created_at - waits) < timedelta(seconds=1)


@pytest.mark.usefixtures("outside")
class TestOnBehalfOf:
    """Who asked is kept as text, for the audit."""

    @pytest.fixture
    def user(self) -> Any:
        made = User.objects.create(username="ada")
        yield made
        made.delete()

    def test_a_user_a_lazy_one_and_text_are_kept(self, user: User) -> None:
        handle = declare(name="tests.audited")
        for asker in (user, SimpleLazyObject(lambda: user), "import of 3 May", "x" * 255):
            assert requested(handle.on_behalf_of(asker)).enqueued_by == (
                asker if isinstance(asker, str) else f"auth.user:{user.pk}"
            )
        handle.on_behalf_of(user).enqueue()

        assert JobRow.objects.get().enqueued_by == f"auth.user:{user.pk}"

    @pytest.mark.parametrize(
        ("asker", "cause", "fix"),
        [
            (User(username="new"), "is an unsaved auth.user, which has no name yet", "save() it first"),
            (
                AnonymousUser(),
                "is of type AnonymousUser, neither a model instance nor text",
                "on_behalf_of(request.user)",
            ),
            (SimpleLazyObject(AnonymousUser), "is of type AnonymousUser, neither", "on_behalf_of(request.user)"),
            (None, "is of type NoneType, neither", "on_behalf_of(request.user)"),
            (5, "is of type int, neither", "on_behalf_of(request.user)"),
            (gettext_lazy("May"), "is of type __proxy__, neither", "on_behalf_of(request.user)"),
            ("", "is 0 characters of text that cannot name who asked", "on_behalf_of("),
            ("  ", "is 2 characters of text that cannot name who asked", "on_behalf_of("),
            ("a\0b", "is 3 characters of text that cannot name who asked", "on_behalf_of("),
            ("a\ud800", "is 2 characters of text that cannot name who asked", "on_behalf_of("),
            ("a\nb", "is 3 characters of text that cannot name who asked", "on_behalf_of("),
            ("x" * 256, "is 256 characters of text that cannot name who asked", "on_behalf_of("),
        ],
        ids=str,
    )
    def test_what_names_nobody_is_refused(self, asker: object, cause: str, fix: str) -> None:
        handle = declare()
        for refusal in (refused, refused_inside):
            error = refusal(INPUT, lambda: handle.on_behalf_of(asker).enqueue())
            assert error.cause.startswith(f"the value at `enqueued_by` {cause}")
            assert error.fix.startswith(fix)

    def test_it_travels_through_the_outbox(self, user: User) -> None:
        with transaction.atomic():
            declare().on_behalf_of(user).enqueue()

        assert OutboxEntry.objects.get().enqueued_by == f"auth.user:{user.pk}"


def bodies() -> list[tuple[Any, str]]:
    def generator(run: Any) -> Any:
        yield

    async def async_generator(run: Any) -> Any:
        yield

    class Callee:
        def __call__(self, run: Any) -> None: ...

        def method(self, run: Any) -> None: ...

    return [
        (generator, "is a generator, which a worker does not run"),
        (async_generator, "is a generator, which a worker does not run"),
        (Callee(), "which is no plain function"),
        (Callee, "which is no plain function"),
        (Callee().method, "which is no plain function"),
        (len, "which is no plain function"),
        (staticmethod(lambda run: None), "which is no plain function"),
    ]


@pytest.mark.parametrize(("body", "cause"), bodies(), ids=str)
def test_what_a_worker_cannot_run_is_refused(body: Callable[..., Any], cause: str) -> None:
    declared = job(name="tests.body", idempotency_key="key", tenant=NO_TENANT)

    assert cause in error_of(DECLARATION, lambda: declared(body)).cause


def test_a_job_is_no_body_of_another() -> None:
    declared = job(name="tests.other", idempotency_key="key", tenant=NO_TENANT)

    assert "which is no plain function" in error_of(DECLARATION, lambda: declared(job_taking())).cause
