"""The servers of the contract of framework backends: one for each framework and mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("backends.contract", "support.framework_server")

from support.framework_server import FrameworkServer, framework_server  # noqa: E402


@pytest.fixture(scope="class")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameworkServer]:
    """A server whose models of the class's framework run in the mode that is the parameter."""
    framework = request.cls.framework
    with framework_server(framework, request.param, tmp_path_factory.mktemp(f"{framework.name}_{request.param}")) as it:
        yield it
        assert it.server.process.poll() is None, it.server.log
        assert "Traceback" not in it.server.log, it.server.log
