"""RLAD: Training LLMs to Discover Abstractions for Solving Reasoning Problems, arXiv:2510.02263."""
