"""Callers that ask one model all the time, for tests of what happens to it meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer


class Traffic:
    """Callers that ask one model without a pause, each on a connection of its own."""

    def __init__(self, server: RunningServer, model: str, http: int, grpc: int) -> None:
        self.failures: list[BaseException] = []
        self.answered = 0
        self._ended = threading.Event()
        self._server = server
        self._model = model
        kinds = [tritonclient.http] * http + [tritonclient.grpc] * grpc
        self._threads = [threading.Thread(target=self._ask, args=(kind,)) for kind in kinds]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, kind: Any) -> None:
        url = self._server.url if kind is tritonclient.http else self._server.grpc_url
        values = np.arange(4, dtype=np.int32)
        given = kind.InferInput("INPUT0", values.shape, "INT32")
        given.set_data_from_numpy(values)
        with kind.InferenceServerClient(url) as client:
            while not self._ended.is_set():
                try:
                    found = client.infer(self._model, [given]).as_numpy("OUTPUT0")
                    assert found.tolist() == values.tolist()
                except Exception as error:
                    self.failures.append(error)
                    return
                self.answered += 1
