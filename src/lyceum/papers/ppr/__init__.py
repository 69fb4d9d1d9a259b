"""Hybrid Reward Normalization for Process-supervised Non-verifiable Agentic Tasks, arXiv:2509.25598."""
