"""The indexes of what asks for passes of backfills, and for workers that are alive. Nothing else is in here.

A build that is broken off leaves the migration unapplied, and it can be run again: whatever is there is kept.
"""

from django.db import migrations, models

from ultimat3_jobs.operations import AddIndexOnline


class Migration(migrations.Migration):
    atomic = False  # an index cannot be built concurrently in a transaction

    dependencies = [("ultimat3_jobs", "0005_backfills")]

    operations = [
        AddIndexOnline(
            model_name="backfill",
            index=models.Index(fields=["name", "-created_at"], name="x_backfills_name"),
        ),
        AddIndexOnline(
            model_name="joblease",
            index=models.Index(
                condition=models.Q(("kind", "worker")), fields=["lease_key"], name="x_job_leases_workers"
            ),
        ),
    ]
