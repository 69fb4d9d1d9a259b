"""SALT: Step-level Advantage Assignment for Long-horizon Agents via Trajectory Graph, arXiv:2510.20022."""
