"""Which tasks are drawn next, and how much each counts."""
