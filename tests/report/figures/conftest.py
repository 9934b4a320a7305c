"""Training curves and tokens with numbers that a reader can redo, and a figure as its files would be."""

import csv
import io
import xml.etree.ElementTree as ElementTree

import pytest

from atrl_bench.report.drawing import figure_csv, figure_style, svg

SVG = "{http://www.w3.org/2000/svg}"


class Files:
    """The SVG and the CSV of a picture."""

    def __init__(self, make, *arguments):
        with figure_style():
            self.picture = make(*arguments)
            self.svg = svg(self.picture, "figure")
        self.csv = figure_csv(self.picture.rows)

    @property
    def rows(self):
        return list(csv.DictReader(io.StringIO(self.csv)))

    @property
    def texts(self):
        """All text that the drawing shows, piece by piece."""
        return ["".join(element.itertext()) for element in ElementTree.fromstring(self.svg).iter(f"{SVG}text")]


@pytest.fixture
def drawn():
    return Files
