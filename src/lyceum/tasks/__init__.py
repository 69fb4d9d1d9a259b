"""Problems: each kind makes tasks on demand and names the grader that fits them."""
