"""DeepMath-103K: A Large-Scale, Challenging, Decontaminated, and Verifiable Mathematical Dataset for Advancing
Reasoning, arXiv:2504.11456
"""
