"""`python -m benchmarks [--json] [--tiny] [--database sqlite|postgresql|both] [NAME ...]`.

Measures the package with its defaults and all its bookkeeping, with the worker command in a process of its own, beside
the raw statements that bound it. Names (or how they begin) choose measurements. The PostgreSQL is that of
`DATABASE_URL` where it names one, otherwise an embedded server.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.chaos.database import fresh_postgresql, fresh_sqlite
from tests.embedded_postgres import embedded_postgres

ROOT_DIRECTORY = Path(__file__).resolve().parent.parent
TAKES = 3_600.0  # seconds on one database, at most


def main(arguments: list[str]) -> int:
    """Measure on each database in turn and print what came of it."""
    parser = ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--json", action="store_true", help="print one JSON object with every figure")
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the figures mean nothing")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    found = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        urls = []
        if options.database != "postgresql":
            urls.append(stack.enter_context(fresh_sqlite(folder)))
        if options.database != "sqlite":
            given = os.environ.get("DATABASE_URL", "")
            server = given if given.startswith("postgres") else stack.enter_context(embedded_postgres())
            urls.append(stack.enter_context(fresh_postgresql(server)))
        for url in urls:
            command = [sys.executable, "-m", "benchmarks.one", "tiny" if options.tiny else "full", *options.names]
            environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
            ran = subprocess.run(
                command,
                cwd=ROOT_DIRECTORY,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=TAKES,
            )
            found.append(json.loads(ran.stdout))
    document = {"machine": machine(load), "databases": found}
    print(json.dumps(document, indent=2) if options.json else as_text(document))
    return 0


def machine(load: tuple[float, float, float]) -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "django": version("django"),
        "psycopg": version("psycopg"),
        "load_before_and_after": [round(load[0], 1), round(os.getloadavg()[0], 1)],
    }


def as_text(document: dict[str, Any]) -> str:
    """Return the document to be read by people: the median, what 95 of 100 stay below, the least and the most."""
    lines = [", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in document["machine"].items())]
    for one in document["databases"]:
        sizes = ", ".join(f"{name}: {size}" for name, size in one["sizes"].items())
        lines += ["", f"{one['database']} ({sizes})", f"{'':32} {'median':>10} {'p95':>10} {'least':>10} {'most':>10}"]
        for name, figure in one["figures"].items():
            values = figure["values"]
            high = statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
            shown = (statistics.median(values), high, min(values), max(values))
            lines.append(f"{name:32} {''.join(f'{_shown(value):>10} ' for value in shown)} {figure['unit']}")
    return "\n".join(lines)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
