"""Multi-Agent Evolve: LLM Self-Improve through Co-evolution, arXiv:2510.23595."""
