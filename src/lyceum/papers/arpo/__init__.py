"""Agentic Reinforced Policy Optimization, arXiv:2507.19849."""
