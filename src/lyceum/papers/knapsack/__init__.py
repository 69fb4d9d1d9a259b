"""Knapsack RL: Unlocking Exploration of LLMs via Optimizing Budget Allocation, arXiv:2509.25849."""
