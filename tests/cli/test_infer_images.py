"""Images as tensors: what the configuration of an input asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.cli.infer_images import image_tensor
from naiad.errors import InvalidArgumentError
from naiad.quickstart.image import png

# Two rows of three pixels; red grows to the right, green downwards.
PIXELS = np.array([[[x * 100, y * 200, 7] for x in range(3)] for y in range(2)], np.uint8)

pytest.importorskip("PIL")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    file = tmp_path / "x.png"
    file.write_bytes(png(PIXELS))
    return file


def config(dims: list[int], data_type: str = "TYPE_UINT8", image_format: str = "FORMAT_NONE", rows: int = 0) -> Any:
    entry = {"name": "x", "data_type": data_type, "dims": [str(size) for size in dims], "format": image_format}
    return {"max_batch_size": rows, "input": [entry]}


def test_the_order_of_axes(image: Path) -> None:
    planar = PIXELS.transpose(2, 0, 1)
    assert np.array_equal(image_tensor(image, "x", config([2, 3, 3], "TYPE_UINT8", "FORMAT_NHWC"), "none"), PIXELS)
    assert np.array_equal(image_tensor(image, "x", config([3, 2, 3], "TYPE_UINT8", "FORMAT_NCHW"), "none"), planar)
    # Without a format the axis with 1 or 3 is that of the colours.
    found = image_tensor(image, "x", config([3, -1, -1], "TYPE_FP32", rows=8), "none")
    assert (found.shape, found.dtype, found.flags.c_contiguous) == ((1, 3, 2, 3), np.float32, True)
    assert np.array_equal(found[0], planar)
    assert image_tensor(image, "x", config([1, 3, 4, 5]), "none").shape == (1, 3, 4, 5)
    assert image_tensor(image, "x", config([4, 5, 1]), "none").shape == (4, 5, 1)


@pytest.mark.parametrize(
    ("scaling", "expected"), [("unit", 200 / 255), ("inception", 200 / 127.5 - 1), ("vgg", 200 - 117)]
)
def test_scaling(image: Path, scaling: str, expected: float) -> None:
    found = image_tensor(image, "x", config([2, 3, 3], "TYPE_FP32", "FORMAT_NHWC"), scaling)
    assert found[1, 0, 1] == pytest.approx(expected)


def test_a_model_that_decodes_gets_the_file(image: Path) -> None:
    content = image.read_bytes()
    assert image_tensor(image, "x", config([-1], rows=4), "none").tobytes() == content
    found = image_tensor(image, "x", config([1], "TYPE_STRING", rows=4), "none")
    assert (found.shape, found[0, 0]) == ((1, 1), content)


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([3, 224, 3], "and no format, expected format: FORMAT_NCHW or FORMAT_NHWC"),
        ([2, 2, 2], "and no format"),
        ([16, 16], "expected an image's"),
    ],
)
def test_inputs_that_are_no_image(image: Path, dims: list[int], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        image_tensor(image, "x", config(dims, "TYPE_FP32"), "none")


def test_files_that_are_no_image(tmp_path: Path) -> None:
    file = tmp_path / "x.jpg"
    file.write_bytes(b"no image")
    with pytest.raises(InvalidArgumentError, match="cannot identify image file"):
        image_tensor(file, "x", config([3, 2, 3], image_format="FORMAT_NCHW"), "none")
    file.write_bytes(png(PIXELS)[:45])
    with pytest.raises(InvalidArgumentError, match=f"--input {file}: "):
        image_tensor(file, "x", config([3, 2, 3], image_format="FORMAT_NCHW"), "none")
    with pytest.raises(FileNotFoundError):
        image_tensor(tmp_path / "missing.png", "x", config([3, 2, 3]), "none")
