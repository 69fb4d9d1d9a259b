"""ZeroSearch: Incentivize the Search Capability of LLMs without Searching, arXiv:2505.04588."""
