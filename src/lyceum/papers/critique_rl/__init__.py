"""Critique-RL: Training Language Models for Critiquing through Two-Stage Reinforcement Learning, arXiv:2510.24320."""
