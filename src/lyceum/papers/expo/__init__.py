"""ExPO: Unlocking Hard Reasoning with Self-Explanation-Guided Reinforcement Learning, arXiv:2507.02834."""
