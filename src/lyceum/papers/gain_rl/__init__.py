"""Angles Don't Lie: Unlocking Training-Efficient RL Through the Model's Own Signals, arXiv:2506.02281."""
