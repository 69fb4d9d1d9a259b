"""Agentic Entropy-Balanced Policy Optimization, arXiv:2510.14545."""
