"""Comparing recipes (runs by seed) and models (samples of the same tasks, weights): intervals, tables, plots."""
