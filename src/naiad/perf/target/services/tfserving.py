"""TensorFlow Serving over REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import orjson

from naiad.perf.settings import InputSettings, TargetSettings
from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.http_request import HttpRequestBytes
from naiad.perf.target.protocol import TargetError
from naiad.perf.target.question import query
from naiad.perf.target.services.body_service import BodyService, WholeStep
from naiad.perf.target.services.predict_body import predict_body, predicted_outputs
from naiad.perf.target.services.signature import describe_signature, read_signature

_PORT: Final = 8501
DESCRIBE_S: Final = 60.0


class TfServingTarget(BodyService):
    """A signature of a SavedModel, by the predict API.

    Raises:
        TargetError: the server is not reached.
    """

    def __init__(self, settings: TargetSettings, inputs: InputSettings) -> None:
        super().__init__(settings, _PORT)
        self._inputs = inputs
        self._model = ModelDescription(settings.model, settings.version, (), ())
        self._is_rows = False
        self._path = f"/v1/models/{quote(settings.model, safe='')}"
        if settings.version:
            # Versions are numbers; anything else is a label that the server gives to one of them.
            kind = "versions" if settings.version.isdigit() else "labels"
            self._path += f"/{kind}/{quote(settings.version, safe='')}"

    def describe(self) -> ModelDescription:
        """Ask the server for the model's signature.

        Raises:
            TargetError: the server does not respond, or the model, the signature or its form does not fit the options.
        """
        request = self._get(f"{self._path}/metadata")
        what = f"the request for the metadata of '{self._settings.model}' at {self.endpoint}"
        query(self.open_side, request, what, DESCRIBE_S)
        try:
            metadata = orjson.loads(request.body)
        except orjson.JSONDecodeError as error:
            raise TargetError(f"{what} gave no JSON: {error}") from None
        signature = read_signature(metadata, self._settings.model_signature_name)
        self._model = describe_signature(self._settings.model, signature, self._inputs)
        self._is_rows = self._takes_rows()
        return self._model

    def _takes_rows(self) -> bool:
        asked, has_batches = self._settings.tfserving_format, self._model.max_batch_size > 0
        if asked == "row" and not has_batches:
            raise TargetError(
                "--tfserving-format=row needs a first dimension that is -1 in every input of the signature, and "
                "--shape without it; take column"
            )
        return has_batches if asked == "auto" else asked == "row"

    def encode(self, step: Step, index: int) -> WholeStep[HttpRequestBytes]:
        """The tensors of a step as JSON; ``describe`` comes first.

        Raises:
            TargetError: JSON has no form for a tensor.
        """
        body = predict_body(step, self._settings.model_signature_name, is_rows=self._is_rows)
        return WholeStep(self._post(f"{self._path}:predict", body, index=index, expected=step.expected))

    def outputs_of(self, response: tuple[bytes, int]) -> Mapping[str, TensorValue]:
        """The outputs of a response; errors as ``predicted_outputs``."""
        return predicted_outputs(response[0], self._model)
