"""The figures of the paper, and one of how well each reading of it finds the anchors: SVG in two themes, and a CSV.

Each module has one `make(source) -> FigureContent`; what it draws from a run folder, it first reads into plain values,
and its `picture(...)` turns plain values into the drawing and the CSV. What the paper prints stands in a panel of its
own.
Their names are here, so that a list of them loads nothing; `draw` has the functions behind them.
"""

FIGURES: dict[str, str] = {
    "scale": "Performance over model size, untrained and trained with AT-RL",
    "connectivity": "How strongly response tokens look at the image, and the 15 % that are called anchors",
    "words": "The tokens that get the most and the least credit, as word clouds with tables",
    "clusters": "The clusters of one response by their share of the credit, with their tokens",
    "errors": "What kinds of errors each method makes on MathVision",
    "anchors": "How well each reading of the paper finds the tokens that were read from the image",
}
