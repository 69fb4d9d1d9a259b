"""PAPO: Perception-Aware Policy Optimization for Multimodal Reasoning, arXiv:2507.06448."""
