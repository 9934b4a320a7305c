"""A language model that decides about the answers that the rules cannot prove right, and how far to trust it."""
