"""Sycophancy to Subterfuge: Investigating Reward-Tampering in Large Language Models, arXiv:2406.10162."""
