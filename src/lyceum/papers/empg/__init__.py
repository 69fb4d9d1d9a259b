"""Harnessing Uncertainty: Entropy-Modulated Policy Gradients for Long-Horizon LLM Agents, arXiv:2509.09265."""
