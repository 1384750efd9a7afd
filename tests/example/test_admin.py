"""What the jobs wrote down can be looked at in the admin, and not be changed there."""

from __future__ import annotations

import pytest
from django.test import Client

from example_project.catalogs.models import Catalog, Entry, EntryState, Finding, Problem, Publication

FINDING = "The kettle is on."


@pytest.fixture
def catalog(db: None) -> Catalog:
    """A catalog with one finding."""
    path = "django/conf/locale/eo/LC_MESSAGES/django.po"
    made = Catalog.objects.create(path=path, group="core", language="eo", total=2, translated=1, untranslated=1)
    Finding.objects.create(catalog=made, line=7, problem=Problem.UNTRANSLATED, message=FINDING)
    return made


def test_catalogs_and_findings_are_shown_and_found(admin_client: Client, catalog: Catalog) -> None:
    for page in ("catalog/", "catalog/?q=conf&group=core", "finding/", "finding/?q=kettle&problem=untranslated"):
        answer = admin_client.get(f"/admin/catalogs/{page}")
        assert answer.status_code == 200
        assert (catalog.path if page.startswith("catalog") else FINDING) in answer.content.decode()


def test_entries_and_publications_are_shown_and_found(admin_client: Client, catalog: Catalog) -> None:
    Entry.objects.create(catalog=catalog, msgid=FINDING, msgstr="Ketolo staras.", state=EntryState.TRANSLATED)
    Publication.objects.create(path=catalog.path, checksum="0", entries=2, translated=1, reviewed_by="ann")
    for page in ("entry/", "entry/?q=staras&state=translated", "publication/", "publication/?q=eo&reviewed_by=ann"):
        answer = admin_client.get(f"/admin/catalogs/{page}")
        assert answer.status_code == 200
        assert (FINDING if page.startswith("entry") else catalog.path) in answer.content.decode()
    for page in ("entry", "publication"):
        assert admin_client.get(f"/admin/catalogs/{page}/add/").status_code == 403


def test_they_cannot_be_changed(admin_client: Client, catalog: Catalog) -> None:
    assert admin_client.get("/admin/catalogs/catalog/add/").status_code == 403
    page = f"/admin/catalogs/catalog/{catalog.pk}/change/"
    assert admin_client.get(page).status_code == 200
    assert admin_client.post(page, {"path": "other"}).status_code == 403
    assert admin_client.post(f"/admin/catalogs/catalog/{catalog.pk}/delete/", {"post": "yes"}).status_code == 403
