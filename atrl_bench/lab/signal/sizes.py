"""How much a signal measures, whatever the model."""

NUM_BLOCKS = 16  # of prompts, which intervals draw again
NUM_DIRECTIONS = 4  # from prompts of their own, along which one step is tried
STEP_SIZES = (1.0, 3.0, 10.0, 30.0)  # in learning rates of the profile
EXACT_PARAMETERS = 2**21  # of so many the blocks' sums are kept whole
