"""QwenLong-L1: Towards Long-Context Large Reasoning Models with Reinforcement Learning, arXiv:2505.17667."""
