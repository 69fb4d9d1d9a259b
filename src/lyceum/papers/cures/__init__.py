"""CurES: From Gradient Analysis to Efficient Curriculum Learning for Reasoning LLMs, arXiv:2510.01037."""
