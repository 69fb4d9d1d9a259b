"""Beyond Reasoning Gains: Mitigating General Capabilities Forgetting in Large Reasoning Models, arXiv:2510.21978."""
