"""RoRecomp: Enhancing Reasoning Efficiency via Rollout Response Recomposition in Reinforcement Learning,
arXiv:2509.25958
"""
