"""Measures how far the message catalogs of the installed Django are translated, one job for each catalog."""
