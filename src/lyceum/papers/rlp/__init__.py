"""RLP: Reinforcement as a Pretraining Objective, arXiv:2510.01265."""
