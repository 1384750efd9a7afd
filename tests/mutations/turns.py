"""The guards of when a pass may go on, of who lets go of it, and of what it leaves behind."""

from __future__ import annotations

from tests.mutations.mutation import POSTGRESQL, Mutation

MIGRATED = "tests/backfills/test_migrate.py::"

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "migrations: indexes whose build was broken off are built by the next migrate",
        "ultimat3_jobs/migrations/0006_backfill_lookups.py",
        "        AddIndexOnline(\n",
        "        migrations.AddIndex(\n",
        f"{MIGRATED}test_our_indexes_whose_build_was_broken_off_are_built_by_the_next_migrate",
        POSTGRESQL,
        places=2,
    ),
)
