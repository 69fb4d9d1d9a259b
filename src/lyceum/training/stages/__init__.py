"""Loops that train the policy: one per stage kind."""
