"""AI-SearchPlanner: Modular Agentic Search via Pareto-Optimal Multi-Objective Reinforcement Learning,
arXiv:2508.20368.
"""
