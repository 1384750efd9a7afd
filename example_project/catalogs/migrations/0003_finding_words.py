"""Expand: a column that code which knows nothing of it leaves empty."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalogs", "0002_publications")]

    operations = [
        migrations.AddField("finding", "words", models.PositiveIntegerField(null=True)),
    ]
