"""ORPO: Monolithic Preference Optimization without Reference Model, arXiv:2403.07691."""
