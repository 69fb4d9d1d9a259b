"""Process-Supervised Reinforcement Learning for Code Generation, arXiv:2502.01715."""
