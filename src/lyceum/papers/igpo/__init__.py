"""Information Gain-based Policy Optimization: A Simple and Effective Approach for Multi-Turn LLM Agents,
arXiv:2510.14967
"""
