"""A folder per paper: its recipes, the components that it alone uses, its proof, its row (``core/paper_folders.py``).

No module of lyceum imports one of these, and no paper another's: a component that two share stands in its slot.
"""
