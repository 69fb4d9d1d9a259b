"""ToTRL: Unlock LLM Tree-of-Thoughts Reasoning Potential through Puzzles Solving, arXiv:2505.12717."""
