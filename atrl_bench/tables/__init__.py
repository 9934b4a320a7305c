"""Table definition -> cells -> run -> HTML, LaTeX, Markdown, CSV and JSON."""
