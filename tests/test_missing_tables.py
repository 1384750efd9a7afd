"""Work that is enqueued before this app's tables exist: the error names the migration to depend on, which mends it."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from tests.app.models import Organization
from tests.declaring import error_of, job_taking
from tests.scratch_project import ScratchProject
from ultimat3_jobs.outbox import admission

JOBS = """
from ultimat3_jobs import NO_TENANT, job

@job(idempotency_key="welcome:{customer_id}", tenant=NO_TENANT)
def welcome(run, customer_id: int) -> None: ...
"""
MODELS = """
from django.db import models
from django.db.models.signals import post_save

class Customer(models.Model):
    name = models.CharField(max_length=20)

def enqueue_welcome(instance, **_):
    from shop.jobs import welcome
    welcome.enqueue(customer_id=instance.pk)

post_save.connect(enqueue_welcome, sender=Customer)
"""
MIGRATION = """
from django.db import migrations, models

def add_first_customer(apps, schema_editor):
    from shop.models import Customer
    Customer.objects.create(name="first")

class Migration(migrations.Migration):
    initial = True
    {dependencies}
    operations = [
        migrations.CreateModel("Customer", [
            ("id", models.BigAutoField(primary_key=True)), ("name", models.CharField(max_length=20)),
        ]),
        migrations.RunPython(add_first_customer),
    ]
"""
SHOW = """
from shop.models import Customer
from ultimat3_jobs.models import Job, OutboxEntry
print("customers", Customer.objects.count(), "work", [*Job.objects.all(), *OutboxEntry.objects.all()][0].input)
"""


@pytest.mark.usefixtures("isolated_registry", "outside")
@pytest.mark.parametrize("table", ["x_outbox", "x_jobs"])
def test_it_is_refused_and_the_transaction_goes_on(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_with_tables", set())
    handle = job_taking()

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {table}")
        for attempt in (handle.enqueue, handle.call().enqueue, lambda: handle.enqueue_many([{}])):
            error = error_of("X_MIGRATION_MISSING", attempt)
            Organization.objects.create(name=str(Organization.objects.count()))
        assert error.cause == "work was enqueued on 'default' before the tables of ultimat3_jobs were made there"
        assert error.fix.startswith('dependencies = [("ultimat3_jobs", "0001_initial")]  # in the migration')
        assert Organization.objects.count() == 3
        transaction.set_rollback(True)

    assert not handle.enqueue().staged


@pytest.mark.sqlite_only(reason="the processes are on a SQLite database of their own")
def test_a_migration_that_enqueues_runs_once_it_has_the_dependency_that_the_error_names(
    scratch: ScratchProject,
) -> None:
    files = {"jobs.py": JOBS, "models.py": MODELS, "migrations/__init__.py": ""}
    scratch.app("shop", files | {"migrations/0001_initial.py": MIGRATION.format(dependencies="dependencies = []")})

    refused = scratch.manage("migrate", "shop")
    assert refused.wait() == 1
    assert "X_MIGRATION_MISSING: work was enqueued on 'default' before" in refused.output()
    fix = refused.output().partition("  fix: ")[2].splitlines()[0]

    scratch.app("shop", {"migrations/0001_initial.py": MIGRATION.format(dependencies=fix)})
    mended = scratch.manage("migrate", "shop")

    assert mended.wait() == 0, mended.output()
    assert scratch.manage("migrate").wait() == 0
    assert "customers 1 work {'customer_id': 1}" in scratch.django(SHOW).output()
