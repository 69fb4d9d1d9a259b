"""From completions to outcome rewards: verifiers, shaping, functions of users."""
