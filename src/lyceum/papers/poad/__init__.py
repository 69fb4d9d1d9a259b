"""Reinforcing Language Agents via Policy Optimization with Action Decomposition, arXiv:2405.15821."""
