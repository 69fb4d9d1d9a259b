"""ASTRO: Teaching Language Models to Reason by Reflecting and Backtracking In-Context, arXiv:2507.00417."""
