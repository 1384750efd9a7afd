"""Reads what PostgreSQL's EXPLAIN says of a statement that has run, and what SQLite's says of one that would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.plans.cases import Case
from ultimat3_jobs.sql import read, statement

_LEFT_OUT = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")
_PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True)
class Plan:
    """How PostgreSQL ran one statement.

    Attributes:
        nodes: of the plan's tree, the top one first.
        text: the plan, to be read by people.
    """

    nodes: list[dict[str, Any]]
    text: str

    @property
    def returned(self) -> int:
        """How many rows the statement returned."""
        return round(self.nodes[0]["Actual Rows"])

    @property
    def touched(self) -> int:
        """How many rows of the app's tables were read, those read twice counted twice."""
        return sum(round(_read(node)) for node in self._scans())

    @property
    def handled(self) -> int:
        """How many rows all parts of the plan gave or left out: of tables, of the batch and of what lies between."""
        return sum(
            round(sum(node.get(one, 0) for one in ("Actual Rows", *_LEFT_OUT)) * node["Actual Loops"])
            for node in self.nodes
        )

    @property
    def pages(self) -> int:
        """How many pages were looked at, those looked at twice counted twice."""
        return int(self.nodes[0]["Shared Hit Blocks"] + self.nodes[0]["Shared Read Blocks"])

    @property
    def indexes(self) -> set[str]:
        """The indexes that were read; those that were there and never used stay out."""
        return {node["Index Name"] for node in self.nodes if "Index Name" in node and node["Actual Loops"]}

    @property
    def sequential(self) -> set[str]:
        """The app's tables that the plan reads from one end to the other."""
        return {node["Relation Name"] for node in self._scans() if node["Node Type"] == "Seq Scan"}

    def _scans(self) -> Iterator[dict[str, Any]]:
        return (node for node in self.nodes if "Relation Name" in node and node["Node Type"] != "ModifyTable")


@dataclass(frozen=True)
class Work:
    """What one statement took on SQLite, which does not tell the rows that it read.

    Attributes:
        returned: how many rows it returned.
        steps: how many its virtual machine made. They grow with the rows that are read, and are the same everywhere.
    """

    returned: int
    steps: int


def explain_analyze(opened: BaseDatabaseWrapper, case: Case, *, generic: bool = False) -> Plan:
    """Run a case's statement in a transaction that is rolled back, and return how PostgreSQL ran it.

    Args:
        generic: with the one plan that serves any parameters; otherwise with the plan for these, as Django's cursors
            ask for unless server-side binding is switched on.
    """
    text, parameters = statement(opened.vendor, case.statement), case.parameters
    with rolled_back(opened), opened.cursor() as cursor:
        if generic:
            names = list(dict.fromkeys(_PARAMETER.findall(text)))
            numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
            cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            cursor.execute(f"PREPARE explained AS {numbered}")
            given = f"({', '.join(f'%({name})s' for name in names)})" if names else ""
            text = f"EXECUTE explained {given}"
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", parameters)
        (found,) = cursor.fetchone()
        if generic:
            cursor.execute("DEALLOCATE explained")
    (explained,) = json.loads(found) if isinstance(found, str) else found
    return Plan(list(_tree(explained["Plan"])), json.dumps(explained, indent=1))


def query_plan(opened: BaseDatabaseWrapper, case: Case) -> list[str]:
    """Return the lines of SQLite's plan for a case's statement."""
    with opened.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement(opened.vendor, case.statement)}", case.parameters)
        return [line for *_, line in cursor.fetchall()]


def indexes(lines: list[str]) -> set[str]:
    """Return the indexes in the lines of SQLite's plan, a primary key's as PostgreSQL names it."""
    found = re.findall(r"USING (?:COVERING )?INDEX (\w+)", "\n".join(lines))
    return {re.sub(r"sqlite_autoindex_(\w+)_1", r"\1_pkey", index) for index in found}


def sequential(case: Case, lines: list[str]) -> list[str]:
    """Return the lines of SQLite's plan that read a table of the app from one end to the other."""
    named = re.findall(r"\b(x_\w+)\b(?: AS (\w+))?", read("sqlite", case.statement))
    tables = "|".join({name for pair in named for name in pair if name})
    # In the order of its primary key it would be read whole as well.
    return [line for line in lines if re.fullmatch(rf"SCAN ({tables})( USING .*autoindex.*)?", line)]


def work(opened: BaseDatabaseWrapper, case: Case) -> Work:
    """Run a case's statement on SQLite in a transaction that is rolled back, and return what it took."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with rolled_back(opened), opened.cursor() as cursor:
        opened.connection.set_progress_handler(count, 1)
        try:
            cursor.execute(statement(opened.vendor, case.statement), case.parameters)
            found = cursor.fetchall() if cursor.description else []
        finally:
            opened.connection.set_progress_handler(None, 0)
    return Work(len(found), steps)


@contextmanager
def rolled_back(opened: BaseDatabaseWrapper) -> Iterator[None]:
    """Do something in a transaction that leaves no trace."""
    with transaction.atomic(using=opened.alias):
        yield
        transaction.set_rollback(True, using=opened.alias)


def _read(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(node["Actual Rows"] + removed) * node["Actual Loops"]


def _tree(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", []):
        yield from _tree(below)
