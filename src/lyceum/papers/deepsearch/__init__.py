"""DeepSearch: Overcome the Bottleneck of Reinforcement Learning with Verifiable Rewards via Monte Carlo Tree
Search, arXiv:2509.25454
"""
