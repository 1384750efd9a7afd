"""Benchmarks of the package as it ships: `python -m benchmarks`."""
