"""Loops that train the policy: one stage of a recipe each."""
