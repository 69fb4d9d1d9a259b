"""Reinforcement Learning for Machine Learning Engineering Agents, arXiv:2509.01684."""
