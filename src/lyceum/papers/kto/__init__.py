"""KTO: Model Alignment as Prospect Theoretic Optimization, arXiv:2402.01306."""
