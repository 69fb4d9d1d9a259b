"""REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Normalization, arXiv:2501.03262."""
