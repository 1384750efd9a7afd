"""`manage.py makebackfill`: what it writes works as it stands, and what it refuses it leaves alone."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.app.models import Organization
from tests.backfills.sweeping import ledger, sweep
from tests.scratch_project import ScratchProject
from ultimat3_jobs import NO_TENANT, job, migrations, registry
from ultimat3_jobs.backfills.skeleton import PLACEHOLDER, Swept, text_of
from ultimat3_jobs.text import MAX_NAME

pytestmark = pytest.mark.usefixtures("isolated_registry")

TOUCHED = 'row.name = f"{row.name}, mended"\n        row.save(update_fields=["name"])'


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the app `app`, empty for the length of a test, and below the current one."""
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.setattr(apps.get_app_config("app"), "path", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def make(*arguments: str, **options: Any) -> str:
    output = StringIO()
    call_command("makebackfill", *arguments, stdout=output, **options)
    return output.getvalue()


def imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tests.app.backfills.{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as raised:
        make(*arguments)
    return str(raised.value)


class TestWritten:
    def test_a_file_with_its_model_runs_as_it_stands_and_completes_nothing_before_it_is_filled_in(
        self, transactional_db: None, app: Path
    ) -> None:
        Organization.objects.create(name="one")
        output = make("app", "mend-names", "--model", "Organization")
        assert output == "wrote app/backfills/mend_names.py\npython manage.py backfill mend-names\n"

        module = imported(app / "backfills" / "mend_names.py")
        done = sweep(module.mend_names)

        assert (done.name, done.state, ledger(done).outcome) == ("mend-names", "delayed", "")
        assert "NotImplementedError: change the row here" in done.last_error

    def test_what_is_filled_in_is_done_to_each_row(self, transactional_db: None, app: Path) -> None:
        Organization.objects.bulk_create([Organization(name=f"{n}") for n in range(3)])
        make("app", "mend-names", "--model", "app.Organization")
        file = app / "backfills" / "mend_names.py"
        file.write_text(file.read_text().replace('raise NotImplementedError("change the row here")', TOUCHED))

        sweep(imported(file).mend_names)

        assert sorted(one.name for one in Organization.objects.all()) == ["0, mended", "1, mended", "2, mended"]

    def test_a_file_without_a_model_works_once_that_is_named(self, transactional_db: None, app: Path) -> None:
        output = make("app", "mend-names")
        assert output.startswith(
            "wrote app/backfills/mend_names.py\nname its model in it, then look: python manage.py "
        )
        file = app / "backfills" / "mend_names.py"
        with registry.isolated():
            assert imported(file).mend_names.name == "mend-names"
        file.write_text(file.read_text().replace(PLACEHOLDER, "Organization"))

        assert sweep(imported(file).mend_names).state == "done"

    def test_the_package_is_made_where_it_is_missing(self, app: Path) -> None:
        make("app", "first")
        (app / "backfills" / "__init__.py").write_text('"""Ours."""\n')
        make("app", "second")

        assert sorted(one.name for one in (app / "backfills").iterdir()) == ["__init__.py", "first.py", "second.py"]
        assert (app / "backfills" / "__init__.py").read_text() == '"""Ours."""\n'

    def test_a_dry_run_prints_the_file_and_writes_nothing(self, app: Path) -> None:
        output = make("app", "mend-names", "--dry-run", "--model", "Organization")

        assert list(app.iterdir()) == []
        make("app", "mend-names", "--model", "Organization")
        file = Path("app/backfills/mend_names.py")
        assert output == f"# {file}\n{file.read_text()}"

    def test_the_latest_migration_is_offered(self, app: Path) -> None:
        text = make("app", "mend", "--dry-run", "--model", "ultimat3_jobs.Job")
        latest = max(one.stem for one in Path(migrations.__file__).parent.glob("0*.py"))

        assert f'# requires=("ultimat3_jobs", "{latest}"' in text
        assert 'requires=("app", "0001_initial")' in make("app", "mend", "--dry-run")

    def test_a_formatter_and_a_linter_leave_it_as_it_is(self, tmp_path: Path) -> None:
        names = ["a", "mend-names", *("n" * length for length in range(28, 48)), "n" * MAX_NAME, "match", "Model_2"]
        models = [None, Swept("shop.models", "Post", "objects"), Swept("shop.models", "Run", "objects")]
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "__init__.py").touch()
        (tmp_path / "shop" / "models.py").touch()
        for number, (name, swept) in enumerate(itertools.product(names, models)):
            function = name.replace("-", "_")
            text = text_of(name=name, function=function, label="shop", migration="0001_initial", swept=swept)
            compile(text, name, "exec")
            (tmp_path / "shop" / f"written_{number}.py").write_text(text)
        (tmp_path / "ruff.toml").write_text('src = ["."]\nlint.select = ["E4", "E7", "E9", "F", "I", "UP"]\n')

        for width in (79, 88, 120):
            assert ruff(tmp_path, "format", "--diff", f"--line-length={width}") == ""
        assert ruff(tmp_path, "check", "--quiet") == ""


def ruff(folder: Path, *arguments: str) -> str:
    """Return what ruff has to say of the app `shop` in a folder."""
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "shop"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, text=True).stdout


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "cause"),
        [
            ("", "cannot be a module's name"),
            ("2fast", "cannot be a module's name"),
            ("_private", "cannot be a module's name"),
            ("__init__", "cannot be a module's name"),
            ("a.b", "cannot be a module's name"),
            ("../a", "cannot be a module's name"),
            ("a/b", "cannot be a module's name"),
            ("a b", "cannot be a module's name"),
            ("naïve", "cannot be a module's name"),
            ("a\n", "cannot be a module's name"),
            ("class", "a word of Python's own"),
            ("None", "a word of Python's own"),
            ("n" * (MAX_NAME + 1), "the name has 201 characters, more than the 200"),
            ("backfill", "what the file itself imports"),
            ("Run", "what the file itself imports"),
            ("Organization", "what the file itself imports"),
            ("taken", "'taken' is declared by tests.backfills.test_makebackfill already"),
        ],
    )
    def test_a_name_that_cannot_be_is_refused(self, app: Path, name: str, cause: str) -> None:
        @job(name="taken", idempotency_key="k", tenant=NO_TENANT)
        def taken(run: Any) -> None: ...

        assert cause in refused("app", name, "--model", "Organization")
        assert list(app.iterdir()) == []

    def test_a_file_that_is_there_is_left_as_it_is(self, app: Path) -> None:
        make("app", "mend-names")
        file = app / "backfills" / "mend_names.py"
        file.write_text("# mine\n")

        assert refused("app", "mend_names") == "app/backfills/mend_names.py is there already: choose another name"
        assert file.read_text() == "# mine\n"

    def test_a_package_of_the_name_would_be_imported_in_its_place(self, app: Path) -> None:
        (app / "backfills" / "mend_names").mkdir(parents=True)

        assert refused("app", "mend-names") == "app/backfills/mend_names is there already: choose another name"

    def test_a_module_in_the_way_is_mended_by_typing_the_fix(self, app: Path) -> None:
        (app / "backfills.py").write_text("# mine\n")
        git = ["git", "-c", "init.defaultBranch=main"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "."], check=True)

        cause, _, fix = refused("app", "mend-names").partition("\n  fix: ")
        assert cause == "app/backfills.py is in the way of a package of that name"
        assert not (app / "backfills").exists()
        subprocess.run(fix, shell=True, check=True)
        make("app", "mend-names")

        assert (app / "backfills" / "__init__.py").read_text() == "# mine\n"
        assert (app / "backfills" / "mend_names.py").exists()

    def test_an_app_that_is_not_installed_is_refused(self) -> None:
        assert refused("nope", "a") == "No installed app with label 'nope'. Is INSTALLED_APPS right?"

    def test_an_app_of_the_environment_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Not where it is: without the guard, the file would be there from then on.
        folder = tmp_path / "site-packages" / "auth"
        folder.mkdir(parents=True)
        monkeypatch.setattr(apps.get_app_config("auth"), "path", str(folder))

        assert refused("auth", "a").startswith("the app auth is installed in ")
        assert "--model auth.Model" in refused("auth", "a")

    @pytest.mark.parametrize("model", ["Nope", "app.Nope", "nope.Post", "a.b.c"])
    def test_a_model_that_is_not_there_is_refused(self, app: Path, model: str) -> None:
        assert refused("app", "a", "--model", model).startswith(f"--model {model}: ")
        assert "values to unpack" not in refused("app", "a", "--model", model)
        assert list(app.iterdir()) == []

    def test_what_cannot_be_written_is_told(self, app: Path) -> None:
        app.rmdir()

        assert refused("app", "a").startswith("cannot write app/backfills/a.py: ")


@pytest.mark.sqlite_only(reason="the processes are on a SQLite database of their own")
def test_what_it_writes_is_found_at_the_next_start(scratch: ScratchProject) -> None:
    scratch.app("shop", {"models.py": "from django.db import models\n\nclass Post(models.Model): ...\n"})

    assert scratch.manage("makebackfill", "shop", "mend-posts", "--model", "Post").wait() == 0
    found = scratch.django("from ultimat3_jobs import registry\nprint('found', registry.find('mend-posts').name)")

    assert "found mend-posts" in found.output()
