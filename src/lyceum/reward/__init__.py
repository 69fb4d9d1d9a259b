"""From completions to outcome rewards: verifiers, shaping, user functions."""
