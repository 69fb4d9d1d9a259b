"""SPELL: Self-Play Reinforcement Learning for evolving Long-Context Language Models, arXiv:2509.23863."""
