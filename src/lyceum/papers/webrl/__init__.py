"""WebRL: Training LLM Web Agents via Self-Evolving Online Curriculum Reinforcement Learning, arXiv:2411.02337."""
