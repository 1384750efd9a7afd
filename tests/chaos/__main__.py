"""`python -m tests.chaos [--seconds 300] [--workers 4] [--seed N] [--database sqlite|postgresql|both]`.

Jobs run on real worker processes with short leases while these are killed, stopped for longer than a lease and
continued, and cut off the database. Callers enqueue in transactions that commit and in such that are taken back. At the
end every job must have ended as its body says, none may be lost, none of a transaction that was taken back may have
run, and the effects of atomic jobs must be there exactly once. The exit status is 0 where that is so and the kills hit
what they are to hit.

The PostgreSQL is that of `DATABASE_URL` where it names one, otherwise the embedded server. It ends by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.arguments import parse
from tests.chaos.database import fresh_postgresql, fresh_sqlite
from tests.chaos.storm import LONGER
from tests.embedded_postgres import embedded_postgres
from tests.warm import SERVED, warm_process

ROOT_DIRECTORY = Path(__file__).resolve().parent.parent.parent
ENDS = 300  # seconds that a run may take beside its attacks


def main(arguments: list[str]) -> int:
    """Run it on each database at the same time; return the exit status."""
    options = parse(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        os.environ[SERVED] = stack.enter_context(warm_process(folder))
        urls = {}
        if options.database != "postgresql":
            urls["sqlite"] = stack.enter_context(fresh_sqlite(folder))
        if options.database != "sqlite":
            given = os.environ.get("DATABASE_URL", "")
            server = given if given.startswith("postgres") else stack.enter_context(embedded_postgres())
            urls["postgresql"] = stack.enter_context(fresh_postgresql(server))
        runs = []
        for name, url in urls.items():
            (folder / name).mkdir()
            command = [sys.executable, "-m", "tests.chaos.one", *arguments, "--folder", str(folder / name)]
            environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"}
            run = subprocess.Popen(command, cwd=ROOT_DIRECTORY, env=environment, stdout=subprocess.PIPE, text=True)
            stack.callback(run.kill)
            runs.append(run)
        for run in runs:
            said, _ = run.communicate(timeout=LONGER * options.seconds + ENDS)
            print(said, flush=True)
        return max(abs(run.returncode) for run in runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
