"""Rewarding the Unlikely: Lifting GRPO Beyond Distribution Sharpening, arXiv:2506.02355."""
