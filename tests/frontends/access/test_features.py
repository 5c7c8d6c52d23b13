"""Every path that is served belongs to a feature, over both protocols."""

from __future__ import annotations

import re

import pytest

from naiad.engine.engine import Engine
from naiad.frontends.access.features import feature_of_grpc, feature_of_http, scopes_of
from naiad.frontends.grpc.v2.services import make_methods
from naiad.frontends.http.v2.path_templates import templates_of
from naiad.frontends.http.v2.router import ROUTES
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.options.restriction import FEATURES

PATHS = [re.sub(r"\{\w+\}", "1", path) for route in ROUTES for path in templates_of(route.pattern.pattern)]


@pytest.mark.parametrize("path", PATHS)
def test_every_route_belongs_to_a_feature(path: str) -> None:
    assert feature_of_http(path) in FEATURES


def test_every_method_of_the_protocol_belongs_to_a_feature() -> None:
    engine = Engine(ModelManager(LoadSettings(lambda backend: {}, cores=1), 1), "test", True)
    outside = [path for path in make_methods(engine) if feature_of_grpc(path) not in FEATURES]
    assert all("ServerReflection" in path for path in outside)


@pytest.mark.parametrize(
    ("path", "feature"),
    [
        ("/v2/health/live", "health"),
        ("/v2/models/m/versions/3/ready", "health"),
        ("/v2", "metadata"),
        ("/v2/models/m", "metadata"),
        ("/v2/models/infer", "metadata"),
        ("/v2/models/m/infer", "inference"),
        ("/v2/models/m/versions/1/generate_stream", "inference"),
        ("/v2/models/stats", "statistics"),
        ("/v2/models/m/stats", "statistics"),
        ("/v2/models/m/config", "model-config"),
        ("/v2/models/m/versions/2/config/written", "model-config"),
        ("/v2/repository/index", "model-repository"),
        ("/v2/repository/models/m/load", "model-repository"),
        ("/v2/cudasharedmemory/region/r/register", "shared-memory"),
        ("/v2/models/m/trace/setting", "trace"),
        ("/v2/logging", "logging"),
        ("/v3", ""),
        ("/v2/models", ""),
    ],
)
def test_features_of_paths(path: str, feature: str) -> None:
    assert feature_of_http(path) == feature


def test_scopes_cover_every_feature() -> None:
    assert all(scopes_of(feature) for feature in FEATURES)
    assert scopes_of("inference") == {"infer"}
    assert scopes_of("model-repository") == {"manage"}
    assert scopes_of("statistics") == {"observe"}
