"""From <Answer> to <Think>: Multidimensional Supervision of Reasoning Process for LLM Optimization,
arXiv:2510.11457
"""
