"""RLBFF: Binary Flexible Feedback to bridge between Human Feedback & Verifiable Rewards, arXiv:2509.21319."""
