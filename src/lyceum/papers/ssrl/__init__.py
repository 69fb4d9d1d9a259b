"""SSRL: Self-Search Reinforcement Learning, arXiv:2508.10874."""
