"""Task sources: each kind makes tasks on demand and provides their grader."""
