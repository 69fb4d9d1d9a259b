"""What is asked of recipes and models: comparisons, searches at test time, boundary, sparsity, doctor, hints."""
