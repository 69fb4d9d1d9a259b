"""Hugging Face models: loaded, checked, forwarded over token trees."""
