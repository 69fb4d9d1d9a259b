"""GRPO-CARE: Consistency-Aware Reinforcement Learning for Multimodal Reasoning, arXiv:2506.16141."""
