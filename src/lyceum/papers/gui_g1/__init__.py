"""GUI-G1: Understanding R1-Zero-Like Training for Visual Grounding in GUI Agents, arXiv:2505.15810."""
