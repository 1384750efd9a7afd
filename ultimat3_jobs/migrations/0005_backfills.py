"""What passes of backfills need beside the columns that were there. Their indexes follow in a migration of their own."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ultimat3_jobs", "0004_steps")]

    operations = [
        migrations.AddField("backfill", "pause_reason", models.CharField(db_default="", max_length=255)),
        migrations.AddField("backfill", "began_with", models.BigIntegerField(db_default=0)),
        # Never written: why a pass ended is its job's to say.
        migrations.RemoveField("backfill", "error"),
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
    ]
