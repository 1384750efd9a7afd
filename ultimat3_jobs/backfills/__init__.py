"""Backfills: sweeps over the rows of a model, in pages, as jobs.

A declaration (`declare.py`) is a job whose body (`sweep.py`) reads its rows by their keys, page by page, and moves a
cursor in the transaction of each page. The ledger (`ledger.py`) reports passes and holds the controls of a live one.
"""
