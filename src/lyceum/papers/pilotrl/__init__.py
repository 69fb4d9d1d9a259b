"""PilotRL: Training Language Model Agents via Global Planning-Guided Progressive Reinforcement Learning,
arXiv:2508.00344.
"""
