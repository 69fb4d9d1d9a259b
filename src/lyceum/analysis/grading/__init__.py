"""Grading completions that are in a file, or that a run sampled, with any reward."""
