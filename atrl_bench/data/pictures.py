"""The one place where a picture of a row is opened, whatever its column is called and whoever brought the row.

A picture is bytes. A row that names a file instead gets the bytes of that file where it lies in the dataset's folder,
and no bytes otherwise. Of Pillow's readers only those of common pictures see them: others start programs.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.data.layout import own_file

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_BYTES = 256 << 20  # of a picture's file
MAX_WEBP_PIXELS = 55_000_000  # which take 18 bytes each; others ten, and Pillow warns of more than 89 million
MAX_ASPECT = 200  # Qwen's processor refuses a longer one, and with it all that is asked beside
STRIP = 256  # rows of pixels
# How base64 begins in the place of a path: a data URL, or alone a PNG, a JPEG, a GIF or a WebP.
ENCODED = re.compile(r"data:image/[\w.+-]+;base64,|(?=(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR)[A-Za-z\d+/\s]{50})")
CELL = frozenset({"bytes", "path"})  # the fields of a picture's cell, and no others


def open_picture(source: bytes | Path) -> Image:
    """An RGB picture, upright, transparent pixels white; raises whatever Pillow raises on what is none."""
    import numpy as np
    from PIL import Image as Pillow
    from PIL import ImageFile, ImageOps

    # Importing lmms-eval turns it on, and half a picture passes for a whole one.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    with warnings.catch_warnings():
        warnings.simplefilter("error", Pillow.DecompressionBombWarning)
        with _opened(source) as file:
            if file.format == "WEBP" and file.width * file.height > MAX_WEBP_PIXELS:
                raise Pillow.DecompressionBombWarning(f"a WebP picture of {file.width} x {file.height} pixels")
            file.load()
            with suppress(SyntaxError, struct.error, ValueError, TypeError, KeyError):  # of EXIF that is none
                ImageOps.exif_transpose(file, in_place=True)
            if file.mode.startswith("I;16"):  # Pillow makes all above 255 white
                return Pillow.fromarray((np.asarray(file) >> 8).astype("uint8")).convert("RGB")
            if file.mode in ("RGBA", "LA", "PA") or "transparency" in file.info:
                return _on_white(file)
            return file.convert("RGB")


def _on_white(picture: Image) -> Image:
    """Strip by strip: of a whole picture of 89 million pixels, four copies would be 1.4 GB."""
    from PIL import Image as Pillow

    width, height = picture.size
    page = Pillow.new("RGB", picture.size)
    for top in range(0, height, STRIP):
        strip = picture.crop((0, top, width, min(height, top + STRIP))).convert("RGBA")
        white = Pillow.new("RGBA", strip.size, "white")
        white.alpha_composite(strip)
        page.paste(white.convert("RGB"), (0, top))
    return page


def picture_size(source: bytes | Path) -> tuple[int, int]:
    """Height and width, read from the header."""
    with _opened(source) as file:
        return file.height, file.width


def _opened(source: bytes | Path) -> Image:
    from PIL import Image as Pillow

    file = Pillow.open(source if isinstance(source, Path) else io.BytesIO(source), formats=FORMATS)
    if max(file.size) > MAX_ASPECT * min(file.size):
        file.close()
        raise OSError(
            f"a picture of {file.width} x {file.height} pixels is more than {MAX_ASPECT} times as long as wide"
        )
    return file


def with_own_files(value: Any, root: Path) -> Any:
    """A row's value in which a picture that is a file of the folder `root` is its bytes; no other file is read."""
    if isinstance(value, list):
        return [with_own_files(item, root) for item in value]
    if isinstance(value, Mapping) and value.keys() != CELL:
        return {name: with_own_files(item, root) for name, item in value.items()}
    if not isinstance(value, Mapping) or value["bytes"] or not value["path"]:
        return value
    path = own_file(root, str(value["path"]))
    is_picture = path.is_file() and path.stat().st_size <= MAX_BYTES
    return {"bytes": path.read_bytes() if is_picture else None, "path": path.relative_to(root).as_posix()}
