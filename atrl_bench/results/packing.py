"""How a store keeps the texts of answers: deflated, with the first that the cell was given as a dictionary.

Answers to one benchmark begin, argue and end alike: of GeoQA's logs a fifth of the bytes stays, two fifths without a
dictionary. It is kept beside them and never changes. Who damages it damages what was copied from it, which the answers'
checksums notice: hence deflate without the header of zlib, which would refuse all of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

DICTIONARY_BYTES = 16384  # of the 32,768 that deflate can look back to; each text costs the time to read them


def dictionary_of(texts: Iterable[str]) -> bytes:
    return "".join(texts).encode()[:DICTIONARY_BYTES]


def packed(text: str, dictionary: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15, zdict=dictionary)
    return packer.compress(text.encode()) + packer.flush()


def unpacked(content: bytes, dictionary: bytes) -> str:
    """The text, or of damaged bytes anything: whoever reads an answer compares its checksum."""
    try:
        return zlib.decompressobj(wbits=-15, zdict=dictionary).decompress(content).decode()
    except (zlib.error, TypeError, UnicodeDecodeError):
        return ""
