"""Thinking With Videos: Multimodal Tool-Augmented Reinforcement Learning for Long Video Reasoning,
arXiv:2508.04416
"""
