"""What the named statements cost on big tables: which indexes they use and how many rows they touch."""
