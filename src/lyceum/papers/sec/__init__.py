"""Self-Evolving Curriculum for LLM Reasoning, arXiv:2505.14970."""
