"""The test suite. `python -m tests` runs it on SQLite and then on a real PostgreSQL."""
