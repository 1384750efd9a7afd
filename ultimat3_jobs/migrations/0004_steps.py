"""What steps, sleeps and waits for events need beside the columns that were there."""

from django.db import migrations, models

from ultimat3_jobs.operations import AddIndexOnline


class Migration(migrations.Migration):
    atomic = False  # an index cannot be built concurrently in a transaction

    dependencies = [("ultimat3_jobs", "0003_lookups")]

    operations = [
        migrations.AddField(model_name="job", name="wait_poll", field=models.FloatField(null=True)),
        migrations.AddField(model_name="jobstep", name="event_id", field=models.BigIntegerField(null=True)),
        AddIndexOnline(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state", "suspended"), ("wait_event__gt", "")),
                fields=["wait_event", "wait_match"],
                name="x_jobs_awaiting",
            ),
        ),
        AddIndexOnline(
            model_name="jobstep",
            index=models.Index(
                condition=models.Q(("event_id__isnull", False)),
                fields=["run_id", "event_id"],
                name="x_job_steps_events",
            ),
        ),
        AddIndexOnline(
            model_name="jobevent",
            index=models.Index(fields=["name", "published_at", "id"], name="x_job_events_name"),
        ),
        AddIndexOnline(
            model_name="jobevent",
            index=models.Index(fields=["name", "match", "published_at", "id"], name="x_job_events_match"),
        ),
        AddIndexOnline(model_name="jobevent", index=models.Index(fields=["expires_at"], name="x_job_events_expiry")),
    ]
