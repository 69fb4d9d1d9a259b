"""Scaf-GRPO: Scaffolded Group Relative Policy Optimization for Enhancing LLM Reasoning, arXiv:2510.19807."""
