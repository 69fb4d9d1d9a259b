"""Process Reinforcement through Implicit Rewards (PRIME), arXiv:2502.01456."""
