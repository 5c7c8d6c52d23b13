"""Real servers for tests, and a clock that a test moves.

```python
from naiad.testing import serving, write_model

def test_my_model(tmp_path):
    write_model(tmp_path / "models", "double", files={"model.onnx": "double.onnx"})
    with serving(tmp_path / "server.log", "--model-repository", tmp_path / "models") as server:
        assert server.infer("double", request).status == 200
```

Every server is a process of its own on free ports of 127.0.0.1, and ends with the ``with`` statement. Nothing here
needs pytest.
"""

from naiad.clock import ManualClock
from naiad.testing.http import RESPONSE_S, HttpResponse, read_response, request_bytes
from naiad.testing.repository import write_model
from naiad.testing.server import START_S, STOP_S, RunningServer, run_to_end, server_environment, serving, start_server
from naiad.testing.waiting import ServerStateError, wait_until

__all__ = [
    "RESPONSE_S",
    "START_S",
    "STOP_S",
    "HttpResponse",
    "ManualClock",
    "RunningServer",
    "ServerStateError",
    "read_response",
    "request_bytes",
    "run_to_end",
    "server_environment",
    "serving",
    "start_server",
    "wait_until",
    "write_model",
]
