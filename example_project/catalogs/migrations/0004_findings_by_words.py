"""Contract: what builds on the column. It waits until the backfill has filled it."""

from django.db import migrations, models

from ultimat3_jobs.operations import RequireBackfill


class Migration(migrations.Migration):
    dependencies = [
        ("catalogs", "0003_finding_words"),
        ("ultimat3_jobs", "0005_backfills"),
    ]

    operations = [
        RequireBackfill("catalogs.count_words", model="Finding", remaining=models.Q(words=None)),
        migrations.AddIndex("finding", models.Index(fields=["words"], name="catalogs_finding_words")),
    ]
