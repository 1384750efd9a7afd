"""The entries of catalogs that are published, and the publications."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalogs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Publication",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("path", models.CharField(db_index=True, max_length=150)),
                ("checksum", models.CharField(max_length=64)),
                ("entries", models.PositiveIntegerField()),
                ("translated", models.PositiveIntegerField()),
                ("reviewed_by", models.CharField(max_length=100)),
            ],
            options={
                "ordering": ["path", "id"],
            },
        ),
        migrations.CreateModel(
            name="Entry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("msgctxt", models.TextField(blank=True)),
                ("msgid", models.TextField()),
                ("msgstr", models.TextField(blank=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("translated", "Translated"),
                            ("fuzzy", "translated by guess"),
                            ("untranslated", "not translated"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "catalog",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="entries",
                        to="catalogs.catalog",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "entries",
                "ordering": ["catalog_id", "id"],
            },
        ),
    ]
