"""Value and process models: what a path is worth before it is finished, or when nobody can verify it."""
