"""A run folder: what it holds, checkpoints, metrics, and how all of it is read back."""
