"""Learning Like Humans: Advancing LLM Reasoning Capabilities via Adaptive Difficulty Curriculum Learning and
Expert-Guided Self-Reformulation, arXiv:2505.08364
"""
