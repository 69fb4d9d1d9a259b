"""Run folders: contents, checkpoints, metrics, and reading them back."""
