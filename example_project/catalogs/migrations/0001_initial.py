"""The catalogs and their findings."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Catalog",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("path", models.CharField(max_length=150, unique=True)),
                ("group", models.CharField(db_index=True, max_length=50)),
                ("language", models.CharField(db_index=True, max_length=20)),
                ("checksum", models.CharField(max_length=64)),
                ("total", models.PositiveIntegerField(default=0)),
                ("translated", models.PositiveIntegerField(default=0)),
                ("fuzzy", models.PositiveIntegerField(default=0)),
                ("untranslated", models.PositiveIntegerField(default=0)),
            ],
            options={
                "ordering": ["path"],
            },
        ),
        migrations.CreateModel(
            name="Finding",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("line", models.PositiveIntegerField()),
                (
                    "problem",
                    models.CharField(
                        choices=[
                            ("untranslated", "not translated"),
                            ("fuzzy", "translated by guess"),
                            ("placeholder", "asks for a value that the original does not give"),
                        ],
                        max_length=20,
                    ),
                ),
                ("context", models.TextField(blank=True)),
                ("message", models.TextField()),
                (
                    "catalog",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="findings",
                        to="catalogs.catalog",
                    ),
                ),
            ],
            options={
                "ordering": ["catalog_id", "line"],
            },
        ),
    ]
