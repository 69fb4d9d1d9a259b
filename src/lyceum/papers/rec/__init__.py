"""Group-Relative REINFORCE Is Secretly an Off-Policy Algorithm: Demystifying Some Myths About GRPO and Its
Friends, arXiv:2509.24203
"""
