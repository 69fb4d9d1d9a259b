"""Helpers that any part of the package may use and that use none of it: external text, the terminal, user files."""
