"""RethinkMCTS: Refining Erroneous Thoughts in Monte Carlo Tree Search for Code Generation, arXiv:2409.09584."""
