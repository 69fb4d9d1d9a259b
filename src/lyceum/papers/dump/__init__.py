"""DUMP: Automated Distribution-Level Curriculum Learning for RL-based LLM Post-training, arXiv:2504.09710."""
