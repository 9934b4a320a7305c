"""Where every answer is kept, and what may be concluded from it: the store, and the statistics over it."""
