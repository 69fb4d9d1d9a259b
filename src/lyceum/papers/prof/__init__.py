"""Beyond Correctness: Harmonizing Process and Outcome Rewards through RL Training, arXiv:2509.03403."""
