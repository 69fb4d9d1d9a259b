"""Agent-RLVR: Training Software Engineering Agents via Guidance and Environment Rewards, arXiv:2506.11425."""
