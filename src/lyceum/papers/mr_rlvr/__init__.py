"""Masked-and-Reordered Self-Supervision for Reinforcement Learning from Verifiable Rewards, arXiv:2511.17473."""
