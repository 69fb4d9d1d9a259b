"""CLPO: Curriculum Learning meets Policy Optimization for LLM Reasoning, arXiv:2509.25004."""
