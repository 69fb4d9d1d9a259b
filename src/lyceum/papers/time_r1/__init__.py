"""Time-R1: Towards Comprehensive Temporal Reasoning in LLMs, arXiv:2505.13508."""
