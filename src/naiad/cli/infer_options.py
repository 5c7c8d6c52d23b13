"""The options of ``naiad infer``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
"""Files that are images."""
SCALINGS: Final = ("none", "unit", "inception", "vgg")
"""Names of the reference's image client, and ``unit``: 0 to 1."""
INFER_OPTIONS: Final = {
    "--input": "a tensor as [NAME=]VALUE: a file of numpy (x.npy), an image (x.jpg), JSON ('[[1, 2]]'), or a text; may "
    "be repeated. The name may be left out where the model has one input, and so may dimensions in front if they are 1",
    "--scaling": "how the colours 0 to 255 of an image become numbers: none (as they are), unit (0 to 1), inception "
    "(-1 to 1), vgg (less the mean colour); none by default",
    "--output": "the name of a wanted output; may be repeated. All of them by default",
    "--url": "the address of the server: host:port, https://host:port or grpc://host:port; localhost:8000 by default",
    "--version": "the version of the model; by default the one that the server chooses",
    "--header": "a header of the request, such as 'Authorization: Bearer KEY'; may be repeated",
    "--timeout": "how many seconds it may take; 60 by default",
    "--save": "a file (outputs.npz) that the outputs are written to instead of being shown",
}
"""What each is for."""


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(
        "naiad infer", description="Send one inference request to a server and print the outputs.", allow_abbrev=False
    )
    text = INFER_OPTIONS.__getitem__
    made.add_argument("model", metavar="MODEL", help="the name of the model")
    made.add_argument("-i", "--input", action="append", required=True, metavar="VALUE", help=text("--input"))
    made.add_argument("-s", "--scaling", choices=SCALINGS, default=SCALINGS[0], type=str.lower, help=text("--scaling"))
    made.add_argument("-o", "--output", action="append", default=[], metavar="NAME", help=text("--output"))
    made.add_argument("-u", "--url", default="localhost:8000", help=text("--url"))
    made.add_argument("--version", default="", help=text("--version"))
    made.add_argument("-H", "--header", action="append", default=[], metavar="LINE", help=text("--header"))
    made.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help=text("--timeout"))
    made.add_argument("--save", type=Path, metavar="FILE", help=text("--save"))
    return made
