"""RL-PLUS: Countering Capability Boundary Collapse of LLMs in Reinforcement Learning with Hybrid-policy
Optimization, arXiv:2508.00222
"""
