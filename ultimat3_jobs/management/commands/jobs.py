"""`manage.py jobs`: look at the queue and mend it from the shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from ultimat3_jobs.errors import AmbiguousId, JobsError, UnknownJob
from ultimat3_jobs.inspection import repair, report, terminal
from ultimat3_jobs.inspection.ids import CANDIDATES, resolve
from ultimat3_jobs.inspection.lists import LAST, Filters, Page, list_jobs
from ultimat3_jobs.inspection.preview import preview
from ultimat3_jobs.inspection.staged import WHICH, list_staged
from ultimat3_jobs.inspection.steps import MAX_STEPS, MAX_STEPS_SHOWN
from ultimat3_jobs.inspection.story import tell
from ultimat3_jobs.management import steering
from ultimat3_jobs.management.reporting import Parser, Refused, ReportingCommand, add_json, limit, storable, who
from ultimat3_jobs.states import LIVE, RETRYABLE, State

COMMAND = "manage.py jobs"
BULK = 1_000
"""Jobs that one bulk repair takes unless `--limit` says less."""

LOOK = "python manage.py jobs ls"
_FILTERS = ("queue", "name", "tenant", "key", "cause", "error")
_MAY = {"retry": RETRYABLE, "cancel": LIVE}


class Command(ReportingCommand):
    help = "Shows jobs and mends them: ls, show, retry, cancel; and passes of backfills: pause, resume, pace."

    def __init__(
        self, stdout: Any = None, stderr: Any = None, no_color: bool = False, force_color: bool = False
    ) -> None:
        super().__init__(stdout, stderr, no_color, force_color)
        self._parsers: dict[str, CommandParser] = {}

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
        ls = actions.add_parser("ls", help="list jobs, the newest first")
        self._parsers["ls"] = ls
        _add_filters(ls)
        ls.add_argument("--staged", choices=WHICH, help="rows of the outbox instead of jobs; without other filters")
        ls.add_argument("--limit", type=limit, default=50, help="jobs at most, up to 1000 (default: 50)")
        ls.add_argument("--before", type=UUID, default=LAST, metavar="ID", help="only jobs older than this id")
        add_json(ls)

        show = actions.add_parser("show", help="tell all about one job, or what became of work that was staged")
        self._parsers["show"] = show
        show.add_argument("id", nargs="?", help="the id, or at least 8 of its first digits")
        show.add_argument(
            "--name", type=storable, default="", help="instead of an id: the job's name, or a former one, with --key"
        )
        show.add_argument("--key", type=storable, default="", help="the idempotency key")
        show.add_argument("--tenant", type=storable, default="", help="the tenant, where several have the key")
        show.add_argument(
            "--steps", type=_steps, default=MAX_STEPS_SHOWN, help="recorded steps at most, of the last (default: 200)"
        )
        add_json(show)

        for action, what in (
            ("retry", "start dead letters again; attempts start over, history stays"),
            ("cancel", "stop jobs for good that have not ended"),
        ):
            one = actions.add_parser(action, help=what)
            one.add_argument("ids", nargs="*", metavar="ID", help="ids, or at least 8 of their first digits")
            _add_filters(one)
            one.add_argument("--write", action="store_true", help="with filters: do it; without it is a dry run")
            one.add_argument("--limit", type=limit, default=BULK, help="with filters: jobs at most (default: 1000)")
            one.add_argument("--reason", type=_reason, default="", help="why, kept in the job's history")
            add_json(one)
            self._parsers[action] = one
        retry = self._parsers["retry"]
        retry.add_argument(
            "--from-step", type=storable, metavar="NAME", help="do this recorded step and all that came after it again"
        )
        retry.add_argument(
            "--preview", action="store_true", help="with ids: show what would be skipped and what done again"
        )

        self._parsers |= steering.add_arguments(actions, reason=_reason)

    def answer(self, options: dict[str, Any]) -> None:
        getattr(self, f"_{options['action']}")(options)

    def _ls(self, options: dict[str, Any]) -> None:
        filters = self._filters(options)
        if options["staged"]:
            self._ls_staged(filters, options)
            return
        page = list_jobs(filters, limit=options["limit"], before=options["before"])
        if options["json"]:
            self.print_json(report.page(page))
            return
        self.print_text(terminal.page(page))
        if unknown := sorted(set(filters.states) - set(State)):
            self.print_text(f"No state of this build: {terminal.safe(', '.join(unknown))}. It has {', '.join(State)}.")

    def _ls_staged(self, filters: Filters, options: dict[str, Any]) -> None:
        if filters != Filters():
            self._parsers["ls"].error("--staged takes no other filters")
        page = list_staged(options["staged"], limit=options["limit"], before=options["before"])
        if options["json"]:
            self.print_json(report.staged_page(page))
        else:
            self.print_text(terminal.staged_page(page))

    def _show(self, options: dict[str, Any]) -> None:
        if options["id"] is not None:
            found = resolve(options["id"])
        elif options["name"] and options["key"]:
            found = self._by_key(Filters(name=options["name"], key=options["key"], tenant=options["tenant"]))
        else:
            self._parsers["show"].error("give an id, or --name and --key")
        told = tell(found, steps=options["steps"])
        if told is None:
            raise UnknownJob(f"the job {found} has just been deleted", fix=LOOK)
        if options["json"]:
            self.print_json(report.story(told))
            return
        self.print_text(terminal.story(told))

    def _retry(self, options: dict[str, Any]) -> None:
        if not options["preview"]:
            self._repair("retry", options)
        elif options["ids"] and self._filters(options) == Filters():
            self._preview(*_resolved(options["ids"]), options)
        else:
            self._parsers["retry"].error("--preview takes ids; with filters it is a dry run without --write")

    def _preview(self, ids: Sequence[UUID], refusals: list[JobsError], options: dict[str, Any]) -> None:
        previews = []
        for one in ids:
            try:
                previews.append(preview(one, options["from_step"]))
            except JobsError as error:
                refusals.append(error)
        if options["json"]:
            errors = [report.error(one) for one in refusals]
            self.print_json({"previews": [report.preview(one) for one in previews], "refused": errors})
        else:
            for found in previews:
                self.print_text(terminal.preview(found))
        if refusals:
            raise Refused("\n".join(terminal.safe(str(one)) for one in refusals))

    def _cancel(self, options: dict[str, Any]) -> None:
        self._repair("cancel", options)

    def _pause(self, options: dict[str, Any]) -> None:
        self._steer("pause", options)

    def _resume(self, options: dict[str, Any]) -> None:
        self._steer("resume", options)

    def _pace(self, options: dict[str, Any]) -> None:
        if steering.changes_nothing(options):
            self._parsers["pace"].error("give --rate, --window or --no-window")
        self._steer("pace", options)

    def _steer(self, action: str, options: dict[str, Any]) -> None:
        done = steering.steer(action, options, by=who(COMMAND))
        if options["json"]:
            self.print_json(steering.as_json(done))
        else:
            self.print_text(terminal.safe(steering.told(done)))

    def _repair(self, action: str, options: dict[str, Any]) -> None:
        filters = self._filters(options)
        if bool(options["ids"]) == (filters != Filters()):
            self._parsers[action].error("give either ids or filters, such as --name")
        if options["ids"]:
            self._carry_out(action, *_resolved(options["ids"]), options)
            return
        states = filters.states or _MAY[action]
        if not set(states) <= set(_MAY[action]):
            self._parsers[action].error(f"{action} takes the states {', '.join(_MAY[action])}")
        page = list_jobs(replace(filters, states=tuple(states)), limit=options["limit"])
        if options["write"]:
            self._carry_out(action, [job.id for job in page.jobs], [], options, page)
        elif options["json"]:
            self.print_json({"dry_run": True, **report.page(page)})
        else:
            self.print_text(terminal.page(page, is_rehearsal=True))
            told = f"A dry run: nothing was changed. --write would {action} {_count(len(page.jobs))}"
            if options.get("from_step") is not None:
                told += f" from step {terminal.safe(repr(options['from_step']))}; those without it would be refused"
            self.print_text(f"{told}.")

    def _filters(self, options: dict[str, Any]) -> Filters:
        """Return the filters. One that is given empty, as an unset variable of a shell leaves it, must not mean all."""
        given = {name: options[name] for name in _FILTERS if options[name] is not None}
        for name, text in given.items():
            if not text.strip():
                self._parsers[options["action"]].error(f"--{name} is empty: give a value, or leave it out")
        return Filters(states=tuple(options["state"]), **given)

    def _carry_out(
        self,
        action: str,
        ids: Sequence[UUID],
        unresolved: Sequence[JobsError],
        options: dict[str, Any],
        page: Page | None = None,
    ) -> None:
        if action == "retry":
            outcomes = repair.retry(ids, by=who(COMMAND), reason=options["reason"], from_step=options["from_step"])
        else:
            outcomes = repair.cancel(ids, by=who(COMMAND), reason=options["reason"])
        refusals = [*unresolved, *(one.error for one in outcomes if one.error)]
        if options["json"]:
            more = {} if page is None else {"before": page.before and str(page.before), "walked": page.walked}
            errors = [report.error(one) for one in unresolved]
            self.print_json({"outcomes": [report.outcome(one) for one in outcomes], "unresolved": errors, **more})
        else:
            for one in outcomes:
                if one.done:
                    self.print_text(f"{one.id} {one.verdict}")
            if page is not None:
                done = sum(one.done for one in outcomes)
                self.print_text(terminal.rest_to_repair(page, done) or f"{_count(done)}, and there are no more.")
        if refusals:
            raise Refused("\n".join(terminal.safe(str(one)) for one in refusals))

    def _by_key(self, filters: Filters) -> UUID:
        page = list_jobs(filters, limit=repair.BATCH)
        if not page.jobs:
            tenant = f" of tenant {filters.tenant!r}" if filters.tenant else ""
            raise UnknownJob(f"there is no job {filters.name!r} with the key {filters.key!r}{tenant}", fix=LOOK)
        newest: dict[str | None, UUID] = {}
        for job in page.jobs:
            newest.setdefault(job.tenant_id, job.id)
        if len(newest) > 1:
            several = ", ".join(f"{found} ({tenant})" for tenant, found in list(newest.items())[:CANDIDATES])
            raise AmbiguousId(
                f"{len(newest)} tenants have jobs {filters.name!r} with the key {filters.key!r}: {several}",
                fix=f"python manage.py jobs show {next(iter(newest.values()))}",
            )
        live = [job.id for job in page.jobs if job.state in LIVE]
        return (live or list(newest.values()))[0]


def _resolved(texts: Sequence[str]) -> tuple[list[UUID], list[JobsError]]:
    """Return the ids, each as often as it is named, and what of the texts is not the id of one row."""
    ids: list[UUID] = []
    errors: list[JobsError] = []
    for text in texts:
        try:
            ids.append(resolve(text))
        except JobsError as error:
            errors.append(error)
    return ids, errors


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", type=storable, action="append", default=[], help=f"{', '.join(State)}; can be repeated"
    )
    parser.add_argument("--queue", type=storable, help="the queue's name")
    parser.add_argument("--name", type=storable, help="the job's name, or a former one: all are meant")
    parser.add_argument("--tenant", type=storable, help="the tenant")
    parser.add_argument("--key", type=storable, help="the idempotency key")
    parser.add_argument("--cause", type=storable, help="the group of like failures, or its beginning")
    parser.add_argument("--error", type=storable, metavar="CLASS", help="the exception's class")


def _count(number: int) -> str:
    return f"{number} job{'' if number == 1 else 's'}"


def _steps(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_STEPS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_STEPS}")
    return int(text)


def _reason(text: str) -> str:
    if len(text) > repair.MAX_REASON:
        raise argparse.ArgumentTypeError(f"it has {len(text)} characters; {repair.MAX_REASON} are kept")
    return storable(text)
