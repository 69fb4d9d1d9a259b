"""Answer-Consistent Chain-of-thought Reinforcement Learning For Multi-modal Large Language Models,
arXiv:2510.10104
"""
