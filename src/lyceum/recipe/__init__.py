"""Recipes: their schema, their files, and the papers that they follow."""
