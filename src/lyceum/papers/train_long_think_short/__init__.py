"""Train Long, Think Short: Curriculum Learning for Efficient Reasoning, arXiv:2508.08940."""
