"""Constraints on what completions may be: transforms of the logits that the learner repeats."""
