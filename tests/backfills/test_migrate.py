"""`migrate` on a project of its own: a contract migration waits for its backfill, and a fresh database does not."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.backfills.conftest import scratch_database
from tests.scratch_project import ScratchProject

CREATED = """
from django.db import migrations, models

class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel("Post", [
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("slug", models.CharField(default="", max_length=100)),
            ("legacy", models.CharField(max_length=100, null=True)),
        ]),
    ]
"""
CONTRACTED = """
from django.db import migrations
from django.db.models import Q
from ultimat3_jobs.operations import RequireBackfill

class Migration(migrations.Migration):
    DEPENDENCIES
    operations = [
        RequireBackfill("rewrite-slugs", model="Post", remaining=Q(slug="")),
        migrations.RemoveField("Post", "legacy"),
    ]
"""
SEEDED = """
from django.db import migrations

def welcome(apps, editor):
    apps.get_model("blog", "Post").objects.create(slug="welcome")

class Migration(migrations.Migration):
    dependencies = [("blog", "0001_initial")]
    operations = [migrations.RunPython(welcome)]
"""
MODELS = """
from django.db import models

class Post(models.Model):
    slug = models.CharField(max_length=100, default="")
"""
ON_OURS = 'dependencies = [("ultimat3_jobs", "0005_backfills")]'
ON_ITS_OWN = 'dependencies = [("blog", "0001_initial")]'
BOTH = 'dependencies = [("blog", "0001_initial"), ("ultimat3_jobs", "0005_backfills")]'
INSERTED = "INSERT INTO blog_post (slug, legacy) VALUES ('', 'one'), ('two', 'two')"
SWEPT = (
    "from tests.backfills.ledger_rows import ledger_row\nledger_row('rewrite-slugs', outcome='completed')\n"
    "from blog.models import Post\nPost.objects.filter(slug='').update(slug='one')\n"
)
IMPATIENT = (
    "from django.core.management import call_command\nfrom ultimat3_jobs import operations\n"
    "operations.LOCK_TIMEOUT = '100ms'\ncall_command('migrate', 'ultimat3_jobs')\n"
)
OURS = "indexrelid::regclass::text IN ('x_backfills_name', 'x_job_leases_workers')"


@pytest.fixture
def blog(scratch_here: ScratchProject) -> ScratchProject:
    """A project whose code declares no backfill: what has been swept is not its code's to say."""
    scratch_here.app(
        "blog",
        {
            "models.py": MODELS,
            "migrations/__init__.py": "",
            "migrations/0001_initial.py": CREATED,
            "migrations/0002_contract.py": CONTRACTED.replace("DEPENDENCIES", ON_ITS_OWN),
        },
    )
    return scratch_here


def manage(project: ScratchProject, *arguments: str, status: int = 0) -> str:
    child = project.manage(*arguments)
    assert child.wait() == status, child.output()
    return child.output()


def execute(project: ScratchProject, statement: str) -> int:
    return project.django(f"from django.db import connection\nconnection.cursor().execute({statement!r})").wait()


def test_a_contract_migration_waits_for_its_backfill(blog: ScratchProject) -> None:
    assert "No changes detected" in manage(blog, "makemigrations", "--check", "blog")
    manage(blog, "migrate", "blog", "0001")
    assert execute(blog, INSERTED) == 0

    told = manage(blog, "migrate", "blog", status=1)
    assert "X_MIGRATION_MISSING" in told
    assert f"fix: {ON_OURS}" in told

    blog.write("blog/migrations/0002_contract.py", CONTRACTED.replace("DEPENDENCIES", BOTH))
    told = manage(blog, "migrate", "blog", status=1)
    assert "X_BACKFILL_PENDING" in told
    assert "fix: python manage.py backfill rewrite-slugs --write --wait  # in a release that declares it\n" in told
    assert execute(blog, "SELECT legacy FROM blog_post") == 0

    assert blog.django(SWEPT).wait() == 0
    manage(blog, "migrate", "blog")
    assert execute(blog, "SELECT legacy FROM blog_post") != 0

    manage(blog, "migrate", "blog", "0001")
    assert execute(blog, "SELECT legacy FROM blog_post") == 0
    manage(blog, "migrate")


def test_a_fresh_database_goes_through_before_our_tables_are_there_and_squashed_too(blog: ScratchProject) -> None:
    assert "THIS OPERATION CANNOT BE WRITTEN AS SQL" in manage(blog, "sqlmigrate", "blog", "0002")
    manage(blog, "migrate", "blog")
    assert execute(blog, "SELECT 1 FROM x_backfills") != 0
    manage(blog, "migrate", "blog", "zero")

    manage(blog, "squashmigrations", "blog", "0001", "0002", "--no-input")
    (squashed,) = (blog.folder / "blog" / "migrations").glob("0001*squashed*.py")
    assert "remaining=models.Q(" in squashed.read_text()
    manage(blog, "migrate", "blog")
    assert execute(blog, "SELECT legacy FROM blog_post") != 0
    assert "No changes detected" in manage(blog, "makemigrations", "--check", "blog")


@pytest.mark.parametrize("ours", [True, False], ids=["after our tables", "before our tables"])
def test_rows_that_a_migration_made_hold_no_fresh_database_up(blog: ScratchProject, ours: bool) -> None:
    blog.write("blog/migrations/0001a_seed.py", SEEDED)
    depends = (BOTH if ours else ON_ITS_OWN).replace("0001_initial", "0001a_seed")
    blog.write("blog/migrations/0002_contract.py", CONTRACTED.replace("DEPENDENCIES", depends))

    manage(blog, "migrate", "blog")

    assert execute(blog, "SELECT slug FROM blog_post") == 0
    assert execute(blog, "SELECT legacy FROM blog_post") != 0


@pytest.mark.postgresql_only(reason="on SQLite nothing is built beside writers")
def test_our_indexes_whose_build_was_broken_off_are_built_by_the_next_migrate(scratch_here: ScratchProject) -> None:
    scratch_here.app("blog", {})
    manage(scratch_here, "migrate", "ultimat3_jobs", "0004")
    writer = connection.copy()
    writer.settings_dict["NAME"] = scratch_database()
    writer.set_autocommit(False)
    try:
        writer.cursor().execute("LOCK TABLE x_job_leases IN ROW EXCLUSIVE MODE")
        broken_off = scratch_here.django(IMPATIENT)
        assert broken_off.wait() != 0
        assert "lock timeout" in broken_off.output()
        assert "0005_backfills... OK" in broken_off.output()
    finally:
        writer.close()

    manage(scratch_here, "migrate", "ultimat3_jobs")
    assert execute(scratch_here, f"SELECT 1 / (count(*) = 2)::int FROM pg_index WHERE indisvalid AND {OURS}") == 0
    manage(scratch_here, "migrate", "ultimat3_jobs", "0004")
