"""Model and task in, graded samples out: prompts, sampling, answer extraction, grading and the run that joins them."""
