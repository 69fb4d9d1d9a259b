"""Single-stream Policy Optimization, arXiv:2509.13232."""
