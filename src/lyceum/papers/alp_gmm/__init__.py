"""Teacher algorithms for curriculum learning of Deep RL in continuously parameterized environments,
arXiv:1910.07224
"""
