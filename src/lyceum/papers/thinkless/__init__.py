"""Thinkless: LLM Learns When to Think, arXiv:2505.13379."""
