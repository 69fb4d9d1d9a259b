"""AMFT: Aligning LLM Reasoners by Meta-Learning the Optimal Imitation-Exploration Balance, arXiv:2508.06944."""
