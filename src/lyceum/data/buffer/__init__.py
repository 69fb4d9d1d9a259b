"""Recorded groups that an online stage trains again beside those just sampled: one file per kind."""
