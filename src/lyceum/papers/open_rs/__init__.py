"""Reinforcement Learning for Reasoning in Small LLMs: What Works and What Doesn't, arXiv:2503.16219."""
