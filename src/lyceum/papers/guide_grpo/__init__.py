"""Adaptive Guidance Accelerates Reinforcement Learning of Reasoning Models, arXiv:2506.13923."""
