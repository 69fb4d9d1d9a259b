"""Syn-GRPO: Self-Evolving Data Synthesis for MLLM Perception Reasoning, arXiv:2511.19343."""
