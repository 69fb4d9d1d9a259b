"""Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment, arXiv:2310.00212."""
