"""`manage.py backfill`: what is declared and swept, what a pass would do, and its start."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn
from uuid import UUID

from django.core.management.base import CommandParser

from ultimat3_jobs.backfills.asking import ask_for_one
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.declare import Backfill
from ultimat3_jobs.backfills.find import all_backfills, find_backfill
from ultimat3_jobs.backfills.passes import live_passes, named
from ultimat3_jobs.backfills.pending import Status
from ultimat3_jobs.backfills.plan import make_plan
from ultimat3_jobs.backfills.trial import try_rows
from ultimat3_jobs.errors import (
    BackfillNotLive,
    BackfillRunning,
    JobsError,
    MigrationMissing,
)
from ultimat3_jobs.inspection import backfill_lists, rehearsal, report, terminal
from ultimat3_jobs.inspection.backfill_texts import ending_text
from ultimat3_jobs.inspection.backfills import list_backfills, list_passes, pending
from ultimat3_jobs.inspection.passes import PassReport
from ultimat3_jobs.management.following import Follower, Screen
from ultimat3_jobs.management.reporting import Parser, Refused, ReportingCommand, add_json, limit, storable, who
from ultimat3_jobs.management.starting import Start, asked, is_quiet, start_report, start_text, starts_report, try_start

COMMAND = "manage.py backfill"
LISTED = 50
MOST_TRIED = 1_000
DETACHED = 3
"""Exit status where Ctrl-C ended the waiting alone."""

FORMS = {
    "list": ("name_is", "status", "limit"),
    "pending": (),
    "name": ("write", "force", "wait", "try_rows"),
    "all": ("write", "wait"),
}
"""The options of each form of the command, beside --json."""
_FLAGS = {"name_is": "--name", "try_rows": "--try"}


class Command(ReportingCommand):
    help = (
        "Shows backfills, and starts passes of them: --list, --pending, a name, or --all. Without --write, a name or "
        "--all is a dry run. Exit codes: 0 done, or nothing to do; 1 refused, failed, or unswept with --pending; "
        "2 arguments that make no sense; 3 --wait was left with Ctrl-C, and the pass goes on."
    )

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **options)
        parser.__class__ = Parser  # Django makes one of its own
        self._parser = parser
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("backfill", nargs="?", type=storable, metavar="NAME", help="the backfill: a dry run of it")
        parser.add_argument("--list", action="store_true", help="list backfills and where they stand")
        parser.add_argument(
            "--pending",
            action="store_true",
            help="exit with 1 where anything declared is neither swept nor being swept",
        )
        parser.add_argument("--all", action="store_true", help="all that may start, in the order of their names")
        parser.add_argument("--write", action="store_true", help="with a name or --all: start, for a worker to sweep")
        parser.add_argument("--force", action="store_true", help="with --write: sweep again what has been swept")
        parser.add_argument("--wait", action="store_true", help="follow the pass to its end")
        parser.add_argument(
            "--try",
            dest="try_rows",
            type=_tried,
            metavar="N",
            help="with a name: handle N rows, show what would change, and undo it",
        )
        parser.add_argument("--name", dest="name_is", type=storable, help="with --list: of this name alone")
        parser.add_argument("--status", choices=[one.value for one in Status], help="with --list: of this status alone")
        parser.add_argument("--limit", type=limit, help=f"with --list: at most so many (default: {LISTED})")
        add_json(parser)

    def answer(self, options: dict[str, Any]) -> None:
        form = self._form(options)
        getattr(self, f"_{form}")(options)

    def _form(self, options: dict[str, Any]) -> str:
        """Return which of the four forms was given, its options checked."""
        given = [form for form in ("list", "pending", "all") if options[form]]
        given += ["name"] if options["backfill"] is not None else []
        if len(given) != 1:
            self._parser.error("give exactly one of --list, --pending, --all and a name")
        (form,) = given
        foreign = {one for options_of in FORMS.values() for one in options_of} - {*FORMS[form]}
        for one in sorted(foreign):
            if options[one] not in (None, False):
                asked = "a name" if form == "name" else f"--{form}"
                self._parser.error(f"{_FLAGS.get(one, f'--{one}')} does not go with {asked}")
        if options["name_is"] == "":
            self._parser.error("--name is empty: give a name, or leave it out")
        if options["force"] and not options["write"]:
            self._parser.error("--force goes with --write")
        if options["try_rows"] is not None and (options["write"] or options["wait"]):
            self._parser.error("--try changes nothing: it goes with neither --write nor --wait")
        if form == "all" and options["wait"] and not options["write"]:
            self._parser.error("--wait with --all goes with --write")
        return form

    def _list(self, options: dict[str, Any]) -> None:
        found = list_backfills(options["name_is"] or "", options["status"] or "", options["limit"] or LISTED)
        if options["name_is"] and not found and not options["status"]:
            find_backfill(options["name_is"])  # which says what may be meant
        if options["json"]:
            self.print_json({"backfills": backfill_lists.backfills_report(found)})
        else:
            self.print_text(backfill_lists.backfills(found))

    def _pending(self, options: dict[str, Any]) -> None:
        found = pending()
        if options["json"]:
            self.print_json(backfill_lists.pending_report(found))
        else:
            self.print_text(backfill_lists.pending(found))
        if found.unswept:
            count = len(found.unswept)
            raise Refused(f"{count} backfill{'' if count == 1 else 's'} must be swept first")

    def _name(self, options: dict[str, Any]) -> None:
        backfill = find_backfill(options["backfill"])
        if options["write"]:
            self._write(backfill, options)
        elif options["try_rows"] is not None:
            self._try(backfill, options)
        elif options["wait"]:
            self._attach(backfill, options)
        else:
            self._plan(backfill, options)

    def _plan(self, backfill: Backfill, options: dict[str, Any]) -> None:
        made = ask_for_one(backfill.name, lambda: make_plan(backfill))
        if options["json"]:
            self.print_json({"dry_run": True, "plan": rehearsal.plan_report(made)})
        else:
            self.print_text(rehearsal.plan(made))
        if made.verdict.error is not None:
            raise Refused(terminal.safe(str(made.verdict.error)))

    def _try(self, backfill: Backfill, options: dict[str, Any]) -> None:
        tried = ask_for_one(backfill.name, lambda: try_rows(backfill, options["try_rows"], by=who(COMMAND)))
        if options["json"]:
            self.print_json({"dry_run": True, "trial": rehearsal.trial_report(tried)})
        else:
            self.print_text(rehearsal.trial(tried))
        if tried.failure:
            raise Refused(terminal.safe(tried.failure))

    def _write(self, backfill: Backfill, options: dict[str, Any]) -> None:
        started = ask_for_one(backfill.name, lambda: try_start(backfill, forced=options["force"], by=who(COMMAND)))
        if isinstance(started.refusal, BackfillRunning) and options["wait"]:
            raise BackfillRunning(started.refusal.cause, fix=backfill_command(backfill.name, "--wait"))
        if started.refusal is not None:
            raise started.refusal
        if not options["json"]:
            self._tell(started)
        report_of = {"started": start_report(started)}
        if options["wait"] and started.queued is not None:
            self._end([self._follow(backfill.name, started.queued.run_id, report_of, options)], report_of, options)
        elif options["json"]:
            self.print_json(report_of)

    def _attach(self, backfill: Backfill, options: dict[str, Any]) -> None:
        """Follow the live pass of a name; where none is, tell how the last one ended."""
        found = _pass_of(backfill)
        if found is None:
            raise BackfillNotLive(
                f"backfill {backfill.name!r} has no pass to wait for", fix=backfill_command(backfill.name, "--write")
            )
        self._end([self._follow(backfill.name, found, {}, options)], {}, options)

    def _follow(self, name: str, run_id: UUID, report_of: dict[str, Any], options: dict[str, Any]) -> PassReport:
        """Follow a pass to its end, and tell it.

        Raises:
            BackfillNotLive: where it has been deleted.
        """
        follower = Follower(name, run_id, self._screen(options))
        try:
            ending = follower.follow()
        except KeyboardInterrupt:
            follower.let_go()
            self._detach(name, run_id, report_of, options)
        if not options["json"]:
            self.print_text(terminal.safe(backfill_lists.ending(ending)))
        return ending

    def _end(
        self,
        endings: list[PassReport],
        report_of: dict[str, Any],
        options: dict[str, Any],
        refusals: Sequence[JobsError] = (),
    ) -> None:
        """Tell how passes that were followed have ended.

        Raises:
            Refused: where one of them did not complete, or something was refused besides.
        """
        if options["json"]:
            self.print_json({**report_of, "passes": [report.swept_pass(one) for one in endings]})
        failed = [f"{one.name}: the pass {ending_text(one)}" for one in endings if not one.status.ended_well]
        failed = [*map(str, refusals), *failed]
        if failed:
            raise Refused("\n".join(map(terminal.safe, failed)))

    def _detach(self, name: str, run_id: UUID, report_of: dict[str, Any], options: dict[str, Any]) -> NoReturn:
        command = backfill_command(name, "--wait")
        if options["json"]:
            self.print_json({**report_of, "detached": str(run_id), "command": command})
        else:
            self.print_text(f"The pass {run_id} goes on. To come back to it:")
            self.print_text(f"    {terminal.safe(command)}")
        sys.exit(DETACHED)

    def _screen(self, options: dict[str, Any]) -> Screen:
        if options["json"]:  # the one object comes at the end, and until then somebody may wait for nobody
            return Screen(self.print_aside, None, only_notices=True)
        return Screen(self.print_text, self._draw if self.stdout.isatty() else None)

    def _draw(self, line: str) -> None:
        # To the line's beginning, and what was there before is cleared.
        self.stdout.write(f"\r\x1b[K{line}", ending="")
        self.stdout.flush()

    def _all(self, options: dict[str, Any]) -> None:
        backfills = all_backfills()
        if not backfills and not options["json"]:
            self.print_text("no installed app declares a backfill")
        starts = self._start_all(backfills, options) if options["write"] else self._plan_all(backfills, options)
        refusals = [one.refusal for one in starts if one.refusal is not None and not is_quiet(one.refusal)]
        if options["wait"]:
            self._follow_all(backfills, starts, refusals, options)
        elif refusals:
            raise Refused("\n".join(terminal.safe(str(one)) for one in refusals))

    def _start_all(self, backfills: list[Backfill], options: dict[str, Any]) -> list[Start]:
        starts = []
        for backfill in backfills:
            try:
                starts.append(asked(backfill, partial(try_start, backfill, forced=False, by=who(COMMAND))))
            except MigrationMissing:  # of the queue, which is nobody's fault in particular
                raise
            except JobsError as error:
                starts.append(Start(backfill.name, refusal=error))
            if not options["json"]:
                self._tell(starts[-1])
        if options["json"] and not options["wait"]:
            self.print_json(starts_report(starts))
        return starts

    def _follow_all(
        self, backfills: list[Backfill], starts: list[Start], refusals: list[JobsError], options: dict[str, Any]
    ) -> None:
        """Follow what was started and what was live already, one after another."""
        report_of, endings = starts_report(starts), []
        for backfill, started in zip(backfills, starts, strict=True):
            run_id = None if started.queued is None else started.queued.run_id
            try:
                if isinstance(started.refusal, BackfillRunning):
                    run_id = _pass_of(backfill)
                if run_id is not None:
                    endings.append(self._follow(backfill.name, run_id, report_of, options))
            except JobsError as error:  # it has been deleted meanwhile
                refusals.append(error)
        self._end(endings, report_of, options, refusals)

    def _plan_all(self, backfills: list[Backfill], options: dict[str, Any]) -> list[Start]:
        starts, reports = [], []
        for backfill in backfills:
            try:
                made = asked(backfill, partial(make_plan, backfill))
            except MigrationMissing:  # of the queue, which is nobody's fault in particular
                raise
            except JobsError as refused:
                starts.append(Start(backfill.name, refusal=refused))
                reports.append({"name": backfill.name, "may_start": False, "refused": report.error(refused)})
                continue
            starts.append(Start(backfill.name, refusal=made.verdict.error, warnings=made.warnings))
            reports.append(rehearsal.plan_report(made))
            if made.verdict.error is None and not options["json"]:
                self.print_text(rehearsal.plan_line(made))
        if options["json"]:
            self.print_json({"dry_run": True, "plans": reports})
        else:
            for one in starts:
                if one.refusal is not None:
                    self._tell(one)
            self.print_text("A dry run: nothing was started. --write starts those that may start.")
        return starts

    def _tell(self, started: Start) -> None:
        for line in start_text(started):
            self.print_text(line)


def _pass_of(backfill: Backfill) -> UUID | None:
    """Return the live pass of a backfill; where none is, the last one, or None where it has none."""
    live = list(live_passes([named(backfill.definition)]))
    return next(iter(live or (one.run_id for one in list_passes(backfill.name, limit=1).passes)), None)


def _tried(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_TRIED:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows from 1 to {MOST_TRIED}")
    return int(text)
