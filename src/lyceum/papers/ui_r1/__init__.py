"""UI-R1: Enhancing Action Prediction of GUI Agents by Reinforcement Learning, arXiv:2503.21620."""
