"""Ladders of hints for a dataset, written by a model."""
