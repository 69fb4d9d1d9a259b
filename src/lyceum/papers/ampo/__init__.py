"""More Than One Teacher: Adaptive Multi-Guidance Policy Optimization for Diverse Exploration, arXiv:2510.02227."""
