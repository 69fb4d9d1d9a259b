"""EPO: Entropy-regularized Policy Optimization for LLM Agents Reinforcement Learning, arXiv:2509.22576."""
