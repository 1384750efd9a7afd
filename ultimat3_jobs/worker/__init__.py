"""The worker: takes due jobs under leases, runs their bodies in threads, and settles what became of them."""
