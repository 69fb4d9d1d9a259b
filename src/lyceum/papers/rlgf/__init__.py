"""Learning to Generate Better Than Your LLM, arXiv:2306.11816."""
