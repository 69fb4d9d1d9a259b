"""DRPO: Efficient Reasoning via Decoupled Reward Policy Optimization, arXiv:2510.04474."""
