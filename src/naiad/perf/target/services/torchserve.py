"""TorchServe over HTTP: the contents of files, whatever they are."""

from __future__ import annotations

import itertools
import math
from typing import Final
from urllib.parse import quote

from naiad.perf.settings import TargetSettings
from naiad.perf.steps import ModelDescription, Step, TensorDescription
from naiad.perf.target.http_request import HttpRequestBytes
from naiad.perf.target.protocol import TargetError
from naiad.perf.target.services.body_service import BodyService, WholeStep
from naiad.tensor.bytes_codec import decode_bytes

_PORT: Final = 8080
_INPUT: Final = "TORCHSERVE_INPUT"


class TorchServeTarget(BodyService):
    """A model whose handler takes the content of a file.

    Raises:
        TargetError: the server is not reached.
    """

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(settings, _PORT)
        self._path = f"/predictions/{quote(settings.model, safe='')}"
        if settings.version:
            self._path += f"/{quote(settings.version, safe='')}"
        self._contents: dict[str, bytes] = {}

    def describe(self) -> ModelDescription:
        """The model, of which the API says nothing: its only input is the path of a file."""
        tensor = TensorDescription(_INPUT, "BYTES", (1,))
        return ModelDescription(self._settings.model, self._settings.version, (tensor,), ())

    def encode(self, step: Step, index: int) -> WholeStep[HttpRequestBytes]:
        """The content of the file of a step: as the field ``data`` of a form, or plain where -H names its type.

        Raises:
            TargetError: the file cannot be read.
        """
        (value,) = step.inputs
        (path,) = decode_bytes(value.data, math.prod(value.shape), value.name)
        content = self._content(path.decode("utf-8", "replace"), index)
        if any(name.lower() == "content-type" for name, _ in self._settings.headers):
            return WholeStep(self._post(self._path, content, index=index))
        multipart, content_type = multipart_of(content)
        return WholeStep(self._post(self._path, multipart, content_type, index))

    def _content(self, path: str, index: int) -> bytes:
        if path not in self._contents:
            try:
                with open(path, "rb") as file:
                    self._contents[path] = file.read()
            except (OSError, ValueError) as error:
                cause = error.strerror if isinstance(error, OSError) else error
                raise TargetError(
                    f"cannot read '{path}', the {_INPUT} of step {index} of --input-data: {cause}; paths count from "
                    "the working folder"
                ) from None
        return self._contents[path]


def multipart_of(content: bytes) -> tuple[bytes, str]:
    """A form with one field, ``data``, and its content type.

    Source: RFC 7578.
    """
    numbers = itertools.count()
    boundary = next(mark for mark in (f"naiad-perf-{number}" for number in numbers) if mark.encode() not in content)
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="data"\r\n\r\n'
    return b"%b%b\r\n--%b--\r\n" % (
        head.encode(),
        content,
        boundary.encode(),
    ), f"multipart/form-data; boundary={boundary}"
