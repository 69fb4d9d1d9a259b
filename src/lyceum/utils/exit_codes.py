"""Exit codes of the commands; 0: done."""

FAILED = 1
"""It failed while running."""
UNUSABLE = 2
"""The command or its input is invalid; nothing was loaded or overwritten."""
NOTHING_LEARNT = 3
"""Nothing was learnt, or nothing could be graded."""
STOPPED = 130
"""Stopped by Ctrl-C."""
