"""A small business app whose jobs the tests run. It has no migrations: the test runner makes its tables."""
