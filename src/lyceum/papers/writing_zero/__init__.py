"""Writing-Zero: Bridge the Gap Between Non-verifiable Problems and Verifiable Rewards, arXiv:2506.00103."""
