"""On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes (GKD), arXiv:2306.13649."""
