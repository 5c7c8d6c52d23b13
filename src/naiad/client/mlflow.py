"""Models of an MLflow registry on a server: deployed, updated, and given a share of the requests first.

The server fetches the files by itself (its repository agent ``mlflow``); a deployment is a configuration that names
them. The server runs with ``--model-control-mode=explicit`` and has ``MLFLOW_TRACKING_URI`` in its environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from naiad.client.errors import ResponseError
from naiad.client.sync import Client
from naiad.errors import InvalidArgumentError

AGENT: Final = "mlflow"
"""The repository agent that fetches models."""
_CARRIER: Final = "mlflow.json"
_PINNED: Final = re.compile(r"models:/[^/@]+/([1-9][0-9]{0,17})")
_WHOLE: Final = 100


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model that a server serves from MLflow.

    Attributes:
        name: of the model on the server.
        models: the addresses in MLflow, one for each version.
        flavor: of the files; "" for the first that a backend reads.
        config: further fields of its configuration, as JSON values.
    """

    name: str
    models: tuple[str, ...]
    flavor: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)

    def as_config(self) -> dict[str, Any]:
        """The configuration, as JSON values."""
        parameters = {"model": ",".join(self.models), **({"flavor": self.flavor} if self.flavor else {})}
        return {
            "version_policy": {"all": {}},
            **self.config,
            "name": self.name,
            "model_repository_agents": {"agents": [{"name": AGENT, "parameters": parameters}]},
        }


def version_of(address: str) -> int:
    """The version that a server gives the model of an address: that of ``models:/<name>/<version>``, else 1."""
    found = _PINNED.fullmatch(address)
    return int(found[1]) if found else 1


def deployed(client: Client, name: str) -> Deployment | None:
    """What the server serves under ``name``, if that comes from MLflow.

    Raises:
        ResponseError: there is no such model.
    """
    config = client.config(name)
    for agent in config.get("model_repository_agents", {}).get("agents", ()):
        if agent["name"] == AGENT:
            parameters = agent["parameters"]
            return Deployment(name, tuple(parameters["model"].split(",")), parameters.get("flavor", ""), config)
    return None


def find_deployed(client: Client, name: str) -> Deployment | None:
    """The deployment ``name``; None for a model that is not served, or does not come from MLflow."""
    try:
        return deployed(client, name)
    except ResponseError as error:
        if error.status not in (400, 404):
            raise
        return None


def deploy(client: Client, wanted: Deployment) -> None:
    """Serve ``wanted`` and nothing else under its name, for all requests; what serves now stays until it is loaded.

    Raises:
        ResponseError: the server refuses it, and what served goes on.
    """
    present = find_deployed(client, wanted.name)
    if present is None or not client.routes(wanted.name).get("split"):
        _load(client, wanted)
        return
    # A split names versions: the new one has to be there before the old ones go.
    _load(client, _beside(present, wanted))
    client.promote(wanted.name, version_of(wanted.models[-1]))
    _load(client, wanted)


def deploy_canary(client: Client, wanted: Deployment, percent: int) -> int:
    """Serve the last model of ``wanted`` beside what serves now, with ``percent`` of the requests without a version.

    Returns:
        The version that has the other requests.

    Raises:
        InvalidArgumentError: nothing is served beside which it could be, or it is the version that serves.
        ResponseError: the server refuses it, and what served goes on.
    """
    present = find_deployed(client, wanted.name)
    if present is None:
        raise InvalidArgumentError(
            f"'{wanted.name}' is not served from MLflow yet: deploy a first version for all requests"
        )
    new = version_of(wanted.models[-1])
    stable = _stable(client, present, new)
    if stable == new:
        raise InvalidArgumentError(f"version {new} of '{wanted.name}' already has the requests: name another version")
    # Requests without a version go to the highest one: not from the load on.
    client.change_routes(wanted.name, split={str(stable): _WHOLE})
    kept = Deployment(wanted.name, tuple(m for m in present.models if version_of(m) == stable))
    try:
        _load(client, _beside(kept, wanted))
        # Refused where the versions have other inputs or outputs.
        client.change_routes(wanted.name, split=_split(stable, new, percent))
    except BaseException:
        _restore(client, present)
        raise
    return stable


def promote(client: Client, name: str, version: int) -> None:
    """Give all requests to ``version``, and unload the other ones.

    Raises:
        ResponseError: the server refuses.
    """
    _keep(client, name, version)


def withdraw(client: Client, name: str, version: int, stable: int) -> None:
    """Give all requests back to ``stable``, and unload ``version``.

    Raises:
        ResponseError: the server refuses.
    """
    _keep(client, name, stable)


def _restore(client: Client, present: Deployment) -> None:
    """Serve ``present`` as before a canary, whose last change was the one that pinned the requests."""
    now = find_deployed(client, present.name)
    if now is not None and now.models != present.models:
        _load(client, replace(present, config=_without_agents(present.config)))
    client.rollback(present.name)


def _keep(client: Client, name: str, version: int) -> None:
    client.promote(name, version)
    present = deployed(client, name)
    if present is not None and len(present.models) > 1:
        kept = tuple(address for address in present.models if version_of(address) == version)
        _load(client, Deployment(name, kept, present.flavor, _without_agents(present.config)))


def _stable(client: Client, present: Deployment, new: int) -> int:
    """The version that has most of the requests now."""
    split: Mapping[str, int] = client.routes(present.name).get("split") or {}
    shares = {int(version): share for version, share in split.items() if int(version) != new}
    if shares:
        return max(shares, key=shares.__getitem__)
    return max(map(version_of, present.models))


def _split(stable: int, new: int, percent: int) -> dict[str, int]:
    shares = {str(stable): _WHOLE - percent, str(new): percent}
    return {version: share for version, share in shares.items() if share}


def _beside(present: Deployment, wanted: Deployment) -> Deployment:
    new = {version_of(address) for address in wanted.models}
    kept = tuple(address for address in present.models if version_of(address) not in new)
    return Deployment(wanted.name, (*kept, *wanted.models), wanted.flavor, wanted.config)


def _without_agents(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "model_repository_agents"}


def _load(client: Client, wanted: Deployment) -> None:
    # A load brings a configuration for a name that no repository has only together with a file.
    about = orjson.dumps({"models": wanted.models, "flavor": wanted.flavor})
    client.load(wanted.name, orjson.dumps(wanted.as_config()).decode(), {_CARRIER: about})


def models_of(index: Sequence[Mapping[str, str]]) -> list[str]:
    """The names in a server's index that have a version that serves."""
    return sorted({entry["name"] for entry in index if entry.get("state") == "READY"})
