"""The admin, and nothing else: the work of this project is done by its worker."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
