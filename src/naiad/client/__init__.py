"""Clients of KServe v2 servers over HTTP and gRPC, with numpy arrays in and out.

```python
from naiad.client import Client

with Client("localhost:8000") as client:
    print(client.infer("double", {"x": [1.0, 2.0, 3.0]})["y"])
```

``AsyncClient`` has the same methods as coroutines.
"""

from naiad.client.aio import AsyncClient
from naiad.client.errors import ConnectionFailedError, DeadlineExceededError, ResponseError
from naiad.client.result import InferResult
from naiad.client.retries import RetryPolicy
from naiad.client.sync import Client

__all__ = [
    "AsyncClient",
    "Client",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "InferResult",
    "ResponseError",
    "RetryPolicy",
]
