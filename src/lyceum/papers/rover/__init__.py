"""Random Policy Valuation is Enough for LLM Reasoning with Verifiable Rewards, arXiv:2509.24981."""
