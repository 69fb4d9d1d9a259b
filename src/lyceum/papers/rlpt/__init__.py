"""Reinforcement Learning on Pre-Training Data, arXiv:2509.19249."""
