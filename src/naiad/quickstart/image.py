"""The sample image: a PNG, drawn and written without a library for images."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import numpy as np

FILE: Final = "image.png"
WIDTH: Final = 320
HEIGHT: Final = 240

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
# 8 bits for each of red, green and blue; deflate, the only filter method, not interlaced.
_FORMAT: Final = (8, 2, 0, 0, 0)
_NO_FILTER: Final = 0


def sample_image() -> bytes:
    """A PNG of a red mug on a wooden table, 320 by 240."""
    return png(_mug())


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """The PNG file of an image: UINT8 [height, width, 3]."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.full((height, 1), _NO_FILTER, np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, *_FORMAT)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines.tobytes())) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _mug() -> np.ndarray[Any, Any]:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    pixels = np.stack([170 + 0.2 * x, 190 + 0.1 * x, 205 - 0.2 * y], axis=-1)
    table = y > 170
    pixels[table] = np.stack([150 + 20 * np.sin(x / 9 + y / 3), 105 + 12 * np.sin(x / 9 + y / 3), 60 + 0 * x], -1)[
        table
    ]
    ring = np.hypot(x - 205, y - 130)
    pixels[(ring > 24) & (ring < 38)] = (150, 25, 25)
    body = (abs(x - 150) < 55) & (y > 75) & (y < 195)
    shade = 215 - 1.2 * abs(x - 130)
    pixels[body] = np.stack([shade, 0.2 * shade, 0.2 * shade], axis=-1)[body]
    pixels[((x - 150) / 55) ** 2 + ((y - 75) / 12) ** 2 < 1] = (70, 40, 25)
    mug: np.ndarray[Any, Any] = np.clip(pixels, 0, 255).astype(np.uint8)
    return mug
