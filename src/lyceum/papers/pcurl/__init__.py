"""VL-Cogito: Progressive Curriculum Reinforcement Learning for Advanced Multimodal Reasoning, arXiv:2507.22607."""
