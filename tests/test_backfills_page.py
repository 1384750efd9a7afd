"""The page on backfills: its samples run as a project would have them; its commands and options are the real ones."""

from __future__ import annotations

import inspect
import re
import shlex
from typing import Any

import pytest
from django.core.management import load_command_class

from tests.processes import ROOT_DIRECTORY
from tests.scratch_project import ScratchProject
from ultimat3_jobs import backfill, errors

PAGE = (ROOT_DIRECTORY / "docs" / "backfills.md").read_text()
SAMPLES = {
    found[1]: found[2] for found in re.finditer(r"^```python\n# blog/(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
}
COMMANDS = re.findall(r"^python manage\.py (.*?)(?: +#.*)?$", PAGE, re.MULTILINE) + re.findall(
    r"`python manage\.py ([^`]*)`", PAGE
)
CREATED = """
from django.db import migrations, models

class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Post", [
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("title", models.CharField(max_length=100)),
        ]),
    ]
"""
CONSTRAINED = """
    class Meta:
        constraints = [models.CheckConstraint(condition=~models.Q(slug=""), name="blog_post_slug")]
"""
WALKED = """
from django.core.management import CommandError, call_command
from django.db import connection

def pending():
    try:
        call_command("backfill", "--pending")
    except (CommandError, SystemExit) as error:
        return getattr(error, "returncode", None) or getattr(error, "code", None)
    return 0

call_command("migrate", "ultimat3_jobs", verbosity=0)
call_command("migrate", "blog", "0002", verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("INSERT INTO blog_post (title) VALUES ('One'), ('Two words'), ('!!!')")
call_command("backfill", "rewrite-slugs")
call_command("backfill", "rewrite-slugs", "--try", "10")
try:
    call_command("migrate", "blog", verbosity=0)
except Exception as error:
    assert "X_BACKFILL_PENDING" in str(error), error
else:
    raise AssertionError("the contract did not wait")
call_command("backfill", "rewrite-slugs", "--write")
call_command("jobs_worker", "--burst")
from blog.models import Post
assert sorted(Post.objects.values_list("slug", flat=True)) == ["one", "post-3", "two-words"]
call_command("migrate", verbosity=0)
call_command("makemigrations", "blog", "--check", verbosity=0)
print("walked", pending())
"""


def test_the_way_of_the_page_can_be_walked(scratch: ScratchProject) -> None:
    given = {"migrations/__init__.py": "", "migrations/0001_initial.py": CREATED, "backfills/__init__.py": ""}
    scratch.app("blog", {**given, **SAMPLES, "models.py": SAMPLES["models.py"] + CONSTRAINED})

    child = scratch.django(WALKED)
    # `shorten-titles` is meant for environments, and the settings do not say which this one is.
    assert "walked 1" in child.output()


def test_the_pages_test_passes(scratch: ScratchProject) -> None:
    given = {"migrations/__init__.py": ""}
    scratch.app("blog", {**given, "migrations/0001_initial.py": CREATED, "backfills/__init__.py": "", **SAMPLES})
    (scratch.folder / "blog/migrations/0003_post_slug_required.py").unlink()

    child = scratch.manage("test", "blog", "--verbosity=0")

    assert "Ran 1 test" in child.output()
    assert "OK" in child.output()


def test_every_option_is_told_with_its_default() -> None:
    told = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|", PAGE.partition("## Declaring")[2], re.MULTILINE)
    parameters = inspect.signature(backfill).parameters
    defaults = {
        name: default for names, default in told for name in re.findall(r"`(\w+)`", names) if name in parameters
    }

    assert defaults.keys() == parameters.keys()
    shown = {name: default for name, default in defaults.items() if re.fullmatch(r"`[^<]*`", default)}
    assert {name: eval(default.strip("`")) for name, default in shown.items()} == {
        name: parameters[name].default for name in shown
    }
    assert {"batch", "rate", "lock", "atomic", "exclusive"} <= shown.keys()


def test_every_code_is_one_of_the_package() -> None:
    codes = {one.code for one in vars(errors).values() if inspect.isclass(one) and hasattr(one, "code")}

    assert set(re.findall(r"\bX_[A-Z_]+\b", PAGE)) <= codes


@pytest.mark.parametrize("line", sorted({*COMMANDS}))
def test_every_command_is_one_that_can_be_typed(line: str) -> None:
    name, *words = shlex.split(line.replace("ID", "0199", 1).replace("NAME", "rewrite-slugs"))
    command: Any = load_command_class("ultimat3_jobs", name)

    command.create_parser("manage.py", name).parse_args(words)
