"""A project that runs ultimat3_jobs on real input: the message catalogs that ship with Django."""
