"""Token credit in verl, loaded in the environment of verl's own versions; without `token_credit` it is verl alone."""
