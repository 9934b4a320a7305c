"""Which problems of a benchmark are in a training set."""
