"""Learning What Reinforcement Learning Can't: Interleaved Online Fine-Tuning for Hardest Questions,
arXiv:2506.07527
"""
