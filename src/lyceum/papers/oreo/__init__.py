"""Offline Reinforcement Learning for LLM Multi-Step Reasoning, arXiv:2412.16145."""
