"""A Unified Pairwise Framework for RLHF: Bridging Generative Reward Modeling and Policy Optimization,
arXiv:2504.04950
"""
