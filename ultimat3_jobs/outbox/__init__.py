"""The transactional outbox: work commits with what caused it, then moves into the queue."""
