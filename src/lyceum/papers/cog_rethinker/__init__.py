"""Cog-Rethinker: Hierarchical Metacognitive Reinforcement Learning for LLM Reasoning, arXiv:2510.15979."""
