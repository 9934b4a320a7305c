"""The laboratory: worlds whose truth is known, and what a credit rule does to the gradient of one checkpoint."""
