"""MaskSearch: A Universal Pre-Training Framework to Enhance Agentic Search Capability, arXiv:2505.20285."""
