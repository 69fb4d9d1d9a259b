"""Iterative Nash Policy Optimization: Aligning LLMs with General Preferences via No-Regret Learning,
arXiv:2407.00617
"""
