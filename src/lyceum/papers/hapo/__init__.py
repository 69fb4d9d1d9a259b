"""From Uniform to Heterogeneous: Tailoring Policy Optimization to Every Token's Nature, arXiv:2509.16591."""
