"""Trust Region Preference Approximation: A simple and stable reinforcement learning algorithm for LLM reasoning,
arXiv:2504.04524
"""
