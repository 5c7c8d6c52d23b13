"""Images as tensors for ``naiad infer``, by what a model's configuration says of its input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from naiad.errors import InvalidArgumentError
from naiad.extras import how_to_install
from naiad.tensor.dtypes import BY_WIRE

# The mean colours that networks of that family subtract.
_VGG_RGB: Final = (123.0, 117.0, 104.0)
_CHANNELS: Final = (1, 3)

Array = np.ndarray[Any, Any]


def image_tensor(path: Path, name: str, config: Mapping[str, Any], scaling: str) -> Array:
    """The image in ``path`` as the input ``name`` of a model with the configuration ``config``.

    An input of BYTES, or of bytes in one dimension, gets the file as it is; the model decodes it. Others get pixels, in
    the size, the datatype and the order of axes (``format``) of the configuration.

    Raises:
        InvalidArgumentError: the input is no image, or the file is none.
        OSError: the file cannot be read.
    """
    about = next((entry for entry in config.get("input", ()) if entry["name"] == name), None)
    if about is None:
        raise InvalidArgumentError(f"--input {path}: the model's configuration has no input '{name}'")
    datatype = BY_WIRE.get(_wire(about["data_type"]))
    dims = [int(size) for size in about["dims"]]
    lead = (1,) if config.get("max_batch_size", 0) > 0 else ()
    encoded = path.read_bytes()
    if datatype is not None and datatype.is_bytes:
        return np.array([encoded], object).reshape((*lead, 1) if dims else (1,))
    if datatype is not None and datatype.wire == "UINT8" and len(dims) == 1:
        return np.frombuffer(encoded, np.uint8).reshape((*lead, -1))
    if len(dims) == 4 and not lead and dims[0] in (1, -1):
        lead, dims = (1,), dims[1:]
    if datatype is None or len(dims) != 3:
        raise InvalidArgumentError(
            f"--input {path}: the input '{name}' is {about['data_type']} with the dims {dims}, expected an image's"
        )
    is_planar = _is_planar(path, name, about.get("format", "FORMAT_NONE"), dims)
    channels, height, width = dims if is_planar else (dims[2], dims[0], dims[1])
    if channels not in _CHANNELS:
        raise InvalidArgumentError(f"--input {path}: the input '{name}' has {channels} channels, expected 1 or 3")
    pixels = _scaled(_pixels(path, channels, height, width), scaling)
    ordered = pixels.transpose(2, 0, 1) if is_planar else pixels
    return np.ascontiguousarray(ordered.astype(datatype.numpy)).reshape((*lead, *ordered.shape))


def _wire(data_type: str) -> str:
    return data_type.removeprefix("TYPE_").replace("STRING", "BYTES")


def _is_planar(path: Path, name: str, image_format: str, dims: list[int]) -> bool:
    if image_format in ("FORMAT_NCHW", "FORMAT_NHWC"):
        return image_format == "FORMAT_NCHW"
    if (dims[0] in _CHANNELS) == (dims[2] in _CHANNELS):
        raise InvalidArgumentError(
            f"--input {path}: the input '{name}' has the dims {dims} and no format, expected format: FORMAT_NCHW or "
            "FORMAT_NHWC in its configuration"
        )
    return dims[0] in _CHANNELS


def _pixels(path: Path, channels: int, height: int, width: int) -> Array:
    try:
        from PIL import Image
    except ImportError:
        raise InvalidArgumentError(f"--input {path}: images need Pillow; run: {how_to_install('images')}") from None
    try:
        with Image.open(path) as opened:
            image = opened.convert("RGB" if channels == 3 else "L")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InvalidArgumentError(f"--input {path}: {error}") from None
    # A size of -1 is the image's own.
    size = (width if width > 0 else image.width, height if height > 0 else image.height)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(image, np.float32).reshape(size[1], size[0], channels)


def _scaled(pixels: Array, scaling: str) -> Array:
    if scaling == "unit":
        return pixels / 255
    if scaling == "inception":
        return pixels / 127.5 - 1
    if scaling == "vgg":
        mean = _VGG_RGB if pixels.shape[2] == 3 else (sum(_VGG_RGB) / 3,)
        return pixels - np.array(mean, np.float32)
    return pixels
