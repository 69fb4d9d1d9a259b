"""The report of a run, and plots."""
