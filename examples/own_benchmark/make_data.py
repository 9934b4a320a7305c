"""Write the benchmark's data: `python make_data.py DATA` makes DATA/dots/test.parquet."""

import sys
from pathlib import Path

from datasets import Dataset, Features, Image, Value
from PIL import Image as Pillow
from PIL import ImageDraw


def picture(num_dots: int) -> Pillow.Image:
    """Return a white picture with so many dots in a row."""
    drawn = Pillow.new("RGB", (112, 56), "white")
    for dot in range(num_dots):
        ImageDraw.Draw(drawn).ellipse((8 + 12 * dot, 22, 16 + 12 * dot, 30), fill="black")
    return drawn


counts = list(range(1, 9))
rows = {
    "id": [f"dots-{count}" for count in counts],
    "picture": [picture(count) for count in counts],
    "question": ["How many dots are there?"] * len(counts),
    "answer": [str(count) for count in counts],
}
text = Value("string")
features = Features({"id": text, "picture": Image(), "question": text, "answer": text})
folder = Path(sys.argv[1]) / "dots"
folder.mkdir(parents=True, exist_ok=True)
Dataset.from_dict(rows, features=features).to_parquet(folder / "test.parquet")
