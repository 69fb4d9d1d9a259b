"""Dataset Reset Policy Optimization for RLHF, arXiv:2404.08495."""
