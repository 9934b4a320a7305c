"""What a credit rule does to the gradient, from rollouts of one checkpoint and without any training."""
