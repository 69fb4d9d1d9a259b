"""ArCHer: Training Language Model Agents via Hierarchical Multi-Turn RL, arXiv:2402.19446."""
