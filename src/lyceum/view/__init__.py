"""What a person looks at: the report of a run, and plots."""
