"""Bridging Supervised Learning and Reinforcement Learning in Math Reasoning, arXiv:2505.18116."""
