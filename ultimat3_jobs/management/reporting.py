"""What the commands that look at the queue share: how they answer, in text or in JSON, and how they refuse."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.inspection import report, terminal
from ultimat3_jobs.inspection.lists import MAX_PAGE
from ultimat3_jobs.schema import unusable
from ultimat3_jobs.text import fault_of_text

MAX_BY = 255
"""Characters of who did something, as the history keeps it."""


class Refused(Exception):
    """Some of what was asked was refused, and has been reported."""


class Parser(CommandParser):
    """Answers in JSON where JSON was asked for, errors of the command line too."""

    json = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.json = "--json" in (args if args is not None else sys.argv[1:])
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if self.json and self.called_from_command_line:
            fault = {
                "code": "X_USAGE",
                "cause": message,
                "fix": f"python {self.prog} --help",
                "docs": "docs/operating.md",
            }
            print(json.dumps({"version": report.VERSION, "error": fault}))  # noqa: T201 - the parser has no stdout
            sys.exit(2)
        super().error(message)
        raise AssertionError("the parser's error() does not return")


class ReportingCommand(BaseCommand):
    """A command whose answers are text for a terminal or one JSON object, and whose refusals say what mends them.

    Exit statuses: 1 where something was refused, 2 for arguments that make no sense.
    """

    def __init__(
        self, stdout: Any = None, stderr: Any = None, no_color: bool = False, force_color: bool = False
    ) -> None:
        no_color = no_color or (bool(os.environ.get("NO_COLOR")) and not force_color)
        super().__init__(stdout, stderr, no_color, force_color)

    def answer(self, options: dict[str, Any]) -> None:
        """Do what was asked.

        Raises:
            Refused: where some of it was refused and has been reported.
            JobsError: where it is refused, which is still to be reported.
        """
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        as_json: bool = options["json"]
        try:
            try:
                self.answer(options)
            except DatabaseError as error:
                raise unusable(queue_alias(), error) from error
        except JobsError as error:
            if not as_json:
                raise CommandError(terminal.safe(str(error))) from error
            self.print_json({"error": report.error(error)})
            sys.exit(1)
        except Refused as refused:
            if not as_json:
                raise CommandError(str(refused)) from refused
            sys.exit(1)

    def print_text(self, text: str) -> None:
        """Print text, with what the terminal's encoding does not have escaped."""
        self.stdout.write(_encodable(text, self.stdout))

    def print_aside(self, text: str) -> None:
        """Print text for people beside an answer for a program."""
        self.stderr.write(_encodable(text, self.stderr))

    def print_json(self, value: dict[str, Any]) -> None:
        """Print the one object of an answer."""
        self.stdout.write(json.dumps({"version": report.VERSION, **value}))


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that asks for JSON."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def limit(text: str) -> int:
    """Return how many rows to list, from the command line."""
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PAGE:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_PAGE}")
    return int(text)


def who(command: str) -> str:
    """Return on whose behalf a command does something: itself, and the user of the operating system."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may have no name for its user
        return command
    return "".join(one for one in f"{command} ({user})" if one.isprintable())[:MAX_BY]


def storable(text: str) -> str:
    """Return text from the command line that a database can be asked for."""
    if fault := fault_of_text(text):
        raise argparse.ArgumentTypeError(f"it holds {fault}")
    return text


def _encodable(text: str, stream: Any) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
