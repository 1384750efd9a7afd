"""Permissions of the admin's actions. It changes no table."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("ultimat3_jobs", "0001_initial")]

    operations = [
        migrations.AlterModelOptions(
            name="job",
            options={
                "ordering": ["-id"],
                "permissions": [("retry_job", "Can retry dead jobs"), ("cancel_job", "Can cancel jobs")],
            },
        ),
        migrations.AlterModelOptions(
            name="outboxentry",
            options={
                "ordering": ["-staged_at", "-id"],
                "permissions": [("retry_outboxentry", "Can retry outbox entries that were set aside")],
                "verbose_name_plural": "outbox entries",
            },
        ),
    ]
