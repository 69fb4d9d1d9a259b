"""Ariadne: A Controllable Framework for Probing and Extending VLM Reasoning Boundaries, arXiv:2511.00710."""
