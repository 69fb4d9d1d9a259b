"""ReSeek: A Self-Correcting Framework for Search Agents with Instructive Rewards, arXiv:2510.00568."""
