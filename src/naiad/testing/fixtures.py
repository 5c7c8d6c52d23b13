"""A pytest fixture: a server in the process of the tests, on free ports.

```python
pytest_plugins = ["naiad.testing.fixtures"]

def test_doubler(naiad_server):
    naiad_server.bind("doubler", lambda x: 2 * x)
    response = next(naiad_server.model("doubler").infer(inputs={"x": [1, 2]}))
    assert response.outputs["output"].numpy().tolist() == [2, 4]
```
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from naiad.inprocess.server import Server


@pytest.fixture
def naiad_server() -> Iterator[Server]:
    """A server that runs: HTTP at ``http_url`` and gRPC at ``grpc_url``, without any model. It ends with the test."""
    with Server(http_address="127.0.0.1", http_port=0, grpc_address="127.0.0.1", grpc_port=0) as server:
        yield server
