"""GTR: Guided Thought Reinforcement Prevents Thought Collapse in RL-based VLM Agent Training, arXiv:2503.08525."""
