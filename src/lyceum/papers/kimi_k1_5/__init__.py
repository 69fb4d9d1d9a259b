"""Kimi k1.5: Scaling Reinforcement Learning with LLMs, arXiv:2501.12599."""
