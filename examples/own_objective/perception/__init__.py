"""PAPO and GTPO for atrl-bench: a term of the loss, and advantages by group."""
