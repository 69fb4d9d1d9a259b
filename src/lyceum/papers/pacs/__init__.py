"""Implicit Actor Critic Coupling via a Supervised Learning Framework for RLVR, arXiv:2509.02522."""
