"""AutoTriton: Automatic Triton Programming with Reinforcement Learning in LLMs, arXiv:2507.05687."""
