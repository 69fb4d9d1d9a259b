"""Measuring: samples of held-out tasks, pass@k, majorities, intervals."""
