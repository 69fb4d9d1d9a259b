"""What is asked of recipes, models and runs, and no training needs: accuracy, grades, comparisons, searches, doctor."""
