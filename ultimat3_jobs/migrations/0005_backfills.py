"""What passes of backfills need beside the columns that were there."""

from django.db import migrations, models

from ultimat3_jobs.operations import AddIndexOnline


class Migration(migrations.Migration):
    atomic = False  # an index cannot be built concurrently in a transaction

    dependencies = [("ultimat3_jobs", "0004_steps")]

    operations = [
        migrations.AddField("backfill", "pause_reason", models.CharField(db_default="", max_length=255)),
        migrations.AddField("backfill", "began_with", models.BigIntegerField(db_default=0)),
        migrations.AlterModelOptions(
            name="backfill",
            options={
                "ordering": ["-created_at"],
                "permissions": [
                    ("pause_backfill", "Can pause, resume and pace passes of backfills"),
                    ("start_backfill", "Can start passes of backfills"),
                ],
                "verbose_name": "pass of a backfill",
                "verbose_name_plural": "backfills",
            },
        ),
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
