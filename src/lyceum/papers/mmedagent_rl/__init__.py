"""MMedAgent-RL: Optimizing Multi-Agent Collaboration for Multimodal Medical Reasoning, arXiv:2506.00555."""
