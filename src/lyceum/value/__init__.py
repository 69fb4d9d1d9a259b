"""Value and process models: the value of a path that is unfinished or cannot be verified."""
