"""COS(M+O)S: Curiosity and RL-Enhanced MCTS for Exploring Story Space via Language Models, arXiv:2501.17104."""
