"""Tree-based Dialogue Reinforced Policy Optimization for Red-Teaming Attacks (DialTree-RPO), arXiv:2510.02286."""
