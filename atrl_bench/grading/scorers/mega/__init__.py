"""The metrics of MEGA-Bench, field by field."""
