"""Mirror Descent Policy Optimization, arXiv:2005.09814."""
