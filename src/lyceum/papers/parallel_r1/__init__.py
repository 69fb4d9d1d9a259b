"""Parallel-R1: Towards Parallel Thinking via Reinforcement Learning, arXiv:2509.07980."""
