"""Truncated Proximal Policy Optimization, arXiv:2506.15050."""
