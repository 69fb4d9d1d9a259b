"""Group-in-Group Policy Optimization for LLM Agent Training, arXiv:2505.10978."""
