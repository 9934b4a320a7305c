"""Charts drawn by programs: run in isolation, described, compared part by part."""
