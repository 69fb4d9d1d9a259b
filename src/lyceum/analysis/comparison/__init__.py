"""Comparing recipes: runs by seed, intervals, tables, plots."""
