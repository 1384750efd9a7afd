"""Indexes for look-ups by people, built while the tables are written to."""

from django.db import migrations, models

from ultimat3_jobs.operations import AddIndexOnline


class Migration(migrations.Migration):
    atomic = False  # an index cannot be built concurrently in a transaction

    dependencies = [("ultimat3_jobs", "0002_permissions")]

    operations = [
        AddIndexOnline(
            model_name="job",
            index=models.Index(
                condition=models.Q(("finished_at__isnull", False), ("state__in", ["dead", "failed"])),
                fields=["id"],
                name="x_jobs_dead_newest",
            ),
        ),
        AddIndexOnline(
            model_name="job",
            index=models.Index(
                condition=models.Q(("cause__gt", ""), ("finished_at__isnull", False)),
                fields=["cause", "id"],
                name="x_jobs_ended_cause",
            ),
        ),
        AddIndexOnline(
            model_name="job",
            index=models.Index(
                condition=models.Q(("finished_at__isnull", False)),
                fields=["name", "state", "id"],
                name="x_jobs_final_name",
            ),
        ),
        AddIndexOnline(
            model_name="job",
            index=models.Index(
                condition=models.Q(
                    ("finished_at__isnull", False),
                    ("tenant_id__isnull", False),
                ),
                fields=["tenant_id", "state", "id"],
                name="x_jobs_final_tenant",
            ),
        ),
        AddIndexOnline(
            model_name="job",
            index=models.Index(
                condition=models.Q(("finished_at__isnull", False)),
                fields=["idempotency_key", "state", "id"],
                name="x_jobs_final_key",
            ),
        ),
        AddIndexOnline(
            model_name="jobattempt",
            index=models.Index(fields=["job_id", "id"], name="x_job_attempts_job"),
        ),
        AddIndexOnline(
            model_name="outboxentry",
            index=models.Index(
                condition=models.Q(("name__gt", ""), ("outcome", "set_aside")), fields=["id"], name="x_outbox_set_aside"
            ),
        ),
    ]
