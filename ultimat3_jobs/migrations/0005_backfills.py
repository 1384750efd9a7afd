"""What passes of backfills need beside the columns that were there."""

from django.db import migrations, models

from ultimat3_jobs.operations import AddIndexOnline


class Migration(migrations.Migration):
    atomic = False  # an index cannot be built concurrently in a transaction

    dependencies = [("ultimat3_jobs", "0004_steps")]

    operations = [
        AddIndexOnline(
            model_name="backfill",
            index=models.Index(fields=["name", "-created_at"], name="x_backfills_name"),
        ),
    ]
