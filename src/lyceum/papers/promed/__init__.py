"""ProMed: Shapley Information Gain Guided Reinforcement Learning for Proactive Medical LLMs, arXiv:2508.13514."""
