"""What carries gRPC in tests of whole servers."""

from __future__ import annotations

import pytest

TRANSPORTS = ("naiad", pytest.param("grpcio", marks=pytest.mark.slow))
"""The second one is for the whole suite: it says the same again, and other fast tests are about what is its own."""
