"""Lists: what the filters mean, all of it, newest first, page by page, however little one look may read."""

from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.declaring import job_taking
from tests.inspection.rows import add_job
from ultimat3_jobs.inspection import lists
from ultimat3_jobs.inspection.lists import LAST, Facets, Filters, list_jobs, search_jobs
from ultimat3_jobs.models import Job
from ultimat3_jobs.states import State

pytestmark = pytest.mark.django_db

STATES = (*State, "frozen")


@pytest.fixture
def mixed() -> list[Job]:
    """Ninety jobs of all states, and of one that no build knows."""
    return [
        add_job(
            STATES[n % 9],
            number=n,
            queue=("mail", "bulk")[n % 2],
            name=f"shop.job{n % 3}",
            tenant_id=("acme", None, "zed")[n // 3 % 3],
            idempotency_key=f"key-{n // 9}-{n}" if n % 4 else f"key-{n}",
            cause=("c" * 64, "d" * 64)[n % 2],
            error_class=("ValueError", "shop.errors.Declined")[n // 2 % 2],
        )
        for n in range(90)
    ]


def meant(jobs: list[Job], filters: Filters) -> list[UUID]:
    """Return what the filters mean, found by looking at every row."""
    facets = [
        Facets(job.id, job.state, job.queue, job.name, job.tenant_id, job.idempotency_key, job.cause, job.error_class)
        for job in jobs
    ]
    return sorted((one.id for one in facets if filters.meet(one)), reverse=True)


def paged(filters: Filters, *, limit: int) -> list[UUID]:
    """Return the ids of all pages."""
    found: list[UUID] = []
    before: UUID | None = LAST
    for _ in range(200):
        assert before is not None
        page = list_jobs(filters, limit=limit, before=before)
        assert len(page.jobs) <= limit
        assert [job.id for job in page.jobs] == sorted((job.id for job in page.jobs), reverse=True)
        found.extend(job.id for job in page.jobs)
        assert page.before is None or page.before < before
        before = page.before
        if before is None:
            return found
    raise AssertionError("the pages do not end")


CHOICES = [
    Filters(states=states, queue=queue, name=name, tenant=tenant, cause=cause, error=error)
    for states, queue, name, tenant, cause, error in product(
        [(), ("dead", "failed"), ("dead",), ("ready", "running"), ("done",), ("frozen",), ("cancelled", "delayed")],
        ["", "mail"],
        ["", "shop.job1"],
        ["", "zed"],
        ["", "d" * 64, "d" * 8],
        ["", "Declined"],
    )
]


@pytest.mark.parametrize(("walk", "limit"), [(5_000, 1_000), (5_000, 7), (4, 3)])
def test_the_pages_hold_all_that_the_filters_mean(
    mixed: list[Job], monkeypatch: pytest.MonkeyPatch, walk: int, limit: int
) -> None:
    monkeypatch.setattr(lists, "WALK", walk)

    for filters in CHOICES if limit > 3 else CHOICES[::7]:
        found, expected = paged(filters, limit=limit), meant(mixed, filters)
        if walk > 90:
            assert found == expected, filters
        else:  # of states with few rows what lies behind the walk is shown on the first page too
            assert set(found) == set(expected), filters


def test_a_look_that_stops_says_so_and_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "WALK", 5)
    old = add_job("done", error_class="Rare")
    for n in range(9):
        add_job("done", number=n)

    first = list_jobs(Filters(states=("done",), error="Rare"), limit=50)
    assert (first.jobs, first.walked) == ([], 5)
    assert first.before is not None
    second = list_jobs(Filters(states=("done",), error="Rare"), limit=50, before=first.before)
    assert [job.id for job in second.jobs] == [old.id]


def test_a_look_reads_no_more_than_it_may(mixed: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "WALK", 4)
    read: list[int] = []
    run = lists.run

    def counted(*arguments: object) -> list[tuple[object, ...]]:
        found = run(*arguments)  # type: ignore[arg-type]
        read.append(len(found))
        return found

    monkeypatch.setattr(lists, "run", counted)
    for filters in CHOICES:
        list_jobs(filters, limit=3)

    assert max(read) <= 4


@pytest.mark.parametrize("part", ["id", "first digits", "name", "key", "tenant"])
def test_a_search_finds_the_whole_of_an_id_key_name_or_tenant(part: str) -> None:
    wanted = add_job("done", name="shop.rare", idempotency_key="the key", tenant_id="the tenant")
    add_job("done")
    text = {
        "id": str(wanted.id),
        "first digits": wanted.id.hex[:30],
        "name": "shop.rare",
        "key": "the key",
        "tenant": "the tenant",
    }[part]

    assert [job.id for job in search_jobs(text, Filters()).jobs] == [wanted.id]
    assert search_jobs(text, Filters(states=("dead",))).jobs == []
    assert search_jobs(text[:-1] if part in ("name", "key", "tenant") else "f" * 32, Filters()).jobs == []


def test_a_search_for_a_name_finds_what_was_queued_under_the_others_of_its_job(isolated_registry: None) -> None:
    job_taking(name="shop.bill", aliases=["shop.charge"])
    rows = [add_job(state, name=name) for name in ("shop.charge", "shop.bill") for state in ("ready", "dead")]
    add_job("dead", name="shop.other")

    for text in ("shop.bill", "shop.charge"):
        assert {job.id for job in search_jobs(text, Filters()).jobs} == {one.id for one in rows}
        assert {job.id for job in search_jobs(text, Filters(states=("dead",))).jobs} == {rows[1].id, rows[3].id}
    assert [job.id for job in search_jobs(rows[0].id.hex, Filters(name="shop.bill")).jobs] == [rows[0].id]


def test_pages_of_a_job_with_several_names_hold_all_of_it(isolated_registry: None, mixed: list[Job]) -> None:
    job_taking(name="shop.job1", aliases=["shop.job2"])

    for states in ((), ("dead", "failed"), ("ready", "running"), ("done",)):
        both = [Filters(states=states, name=name, tenant="zed") for name in ("shop.job1", "shop.job2")]
        expected = sorted((one for each in both for one in meant(mixed, each)), reverse=True)
        for each in both:
            assert paged(each, limit=3) == expected


def test_the_queries_of_a_list_do_not_grow_with_the_table(mixed: list[Job]) -> None:
    def queries() -> list[int]:
        counts = []
        for filters in CHOICES[::11]:
            with CaptureQueriesContext(connection) as captured:
                list_jobs(filters, limit=2)
            counts.append(len(captured))
        return counts

    before = queries()
    for n in range(90):
        add_job(STATES[n % 9], number=n, queue="mail", name="shop.job1", tenant_id="zed", cause="d" * 64)

    # One more where the page has become one with rows to fetch.
    assert all(after - one in (0, 1) for one, after in zip(before, queries(), strict=True))
    assert max(before) <= 12
