"""Learning More with Less: A Dynamic Dual-Level Down-Sampling Framework for Efficient Policy Optimization,
arXiv:2509.22115
"""
