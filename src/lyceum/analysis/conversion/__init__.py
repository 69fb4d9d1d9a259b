"""Configurations of TRL, verl and OpenRLHF, converted to a recipe: each of their keys becomes keys here, or is named.

Nothing of theirs is run: a script is read by its syntax tree, a command line by its words.
"""
