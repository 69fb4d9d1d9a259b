"""MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention (CISPO), arXiv:2506.13585."""
