"""Reinforcement Mid-Training, arXiv:2509.24375."""
