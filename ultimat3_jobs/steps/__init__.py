"""Durable steps: what a run records, so that it is not done again."""
