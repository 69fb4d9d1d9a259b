"""DriveAgent-R1: Advancing VLM-based Autonomous Driving with Active Perception and Hybrid Thinking,
arXiv:2507.20879.
"""
