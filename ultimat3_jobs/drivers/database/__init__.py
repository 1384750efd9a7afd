"""The driver over the project's own database: PostgreSQL, or SQLite with one writer at a time."""
