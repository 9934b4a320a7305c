"""How an answer is scored where a benchmark does not ask "right or wrong": parts of a point."""
