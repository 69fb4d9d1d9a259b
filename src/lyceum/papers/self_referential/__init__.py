"""SRPO: Self-Referential Policy Optimization for Vision-Language-Action Models, arXiv:2511.15605."""
