"""Test-time search: rollouts as in training, and a choice among their answers."""
