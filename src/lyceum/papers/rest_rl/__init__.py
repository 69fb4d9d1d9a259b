"""ReST-RL: Achieving Accurate Code Reasoning of LLMs with Optimized Self-Training and Decoding, arXiv:2508.19576."""
