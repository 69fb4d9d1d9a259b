"""ReST-MCTS*: LLM Self-Training via Process Reward Guided Tree Search, arXiv:2406.03816."""
