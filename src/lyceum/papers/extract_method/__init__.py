"""Generating refactored code accurately using reinforcement learning, arXiv:2412.18035."""
