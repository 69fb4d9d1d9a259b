"""Scorers: one dimension of a reasoning's quality, without the reference answer."""
