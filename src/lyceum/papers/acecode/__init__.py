"""ACECode: A Reinforcement Learning Framework for Aligning Code Efficiency and Correctness in Code Language
Models, arXiv:2412.17264
"""
