"""Comparing recipes: runs by seed, intervals, tables, a plot."""
