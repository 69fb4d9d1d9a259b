"""Learn the Ropes, Then Trust the Wins: Self-imitation with Progressive Exploration for Agentic Reinforcement
Learning, arXiv:2509.22601
"""
