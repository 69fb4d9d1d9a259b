"""On Designing Effective RL Reward at Training Time for LLM Reasoning, arXiv:2410.15115."""
