"""The ``conftest.py`` beside copies of PyTriton's tests of clients. It is not imported here."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

import pytest

from . import pytriton_server

# Attributes of PyTriton's clients that hold tritonclient's, private methods, and threads of gevent.
_INSIDE: Final = ("_infer_client", "_general_client", "_wait_and_init_model_config", "gevent.get_hub")


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Leave out what tests the parts of PyTriton's clients rather than what they do."""
    for item in items:
        source = inspect.getsource(item.function)
        for name in _INSIDE:
            if name in source:
                item.add_marker(pytest.mark.skip(reason=f"looks at {name} of PyTriton's clients"))
                break


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    """Each test has a server of its own, if it needs one."""
    yield
    pytriton_server.stop()
