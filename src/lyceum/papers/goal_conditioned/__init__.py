"""Learning Goal-Conditioned Representations for Language Reward Models, arXiv:2407.13887."""
