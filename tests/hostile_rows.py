"""What tests of hostile datasets share: pictures of every kind, and such that are none."""

import io
import struct
import zlib

from PIL import Image


def encoded(kind: str, size: tuple[int, int] = (56, 56), **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", size, 255).save(buffer, format=kind, **options)
    return buffer.getvalue()


def png(width: int, height: int, *chunks: tuple[bytes, bytes], data: bytes = b"") -> bytes:
    """A PNG file that claims a size and has these chunks."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    packed = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
