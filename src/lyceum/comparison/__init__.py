"""Recipes against each other: runs by seed, intervals, tables, a plot."""
