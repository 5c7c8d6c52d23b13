"""What Vertex AI's variables say about its port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from naiad.errors import OptionError


@dataclass(frozen=True, slots=True)
class VertexAiRoutes:
    """The two paths that the platform calls; both are its own choice."""

    predict: str
    health: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> VertexAiRoutes:
        """The paths that the variables name.

        Raises:
            OptionError: one is missing, or is no path. The first texts are the reference's own.
        """
        predict, health = environ.get("AIP_PREDICT_ROUTE", ""), environ.get("AIP_HEALTH_ROUTE", "")
        if not predict:
            raise OptionError("API_PREDICT_ROUTE is not defined for Vertex AI endpoint: set AIP_PREDICT_ROUTE")
        if not health:
            raise OptionError("AIP_HEALTH_ROUTE is not defined for Vertex AI endpoint")
        for variable, path in (("AIP_PREDICT_ROUTE", predict), ("AIP_HEALTH_ROUTE", health)):
            if not path.startswith("/"):
                raise OptionError(f"{variable} is '{path}', expected a path that begins with a slash")
        if predict == health:
            raise OptionError(f"AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE are both '{predict}', expected two paths")
        return cls(predict, health)
