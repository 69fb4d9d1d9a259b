"""Group Sequence Policy Optimization (GSPO), arXiv:2507.18071."""
