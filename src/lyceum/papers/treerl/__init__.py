"""TreeRL: LLM Reinforcement Learning with On-Policy Tree Search, arXiv:2506.11902."""
