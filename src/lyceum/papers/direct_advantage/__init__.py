"""Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization,
arXiv:2412.18279
"""
