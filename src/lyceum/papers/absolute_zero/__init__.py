"""Absolute Zero: Reinforced Self-play Reasoning with Zero Data, arXiv:2505.03335."""
