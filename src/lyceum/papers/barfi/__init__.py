"""Behavior Alignment via Reward Function Optimization, arXiv:2310.19007."""
