"""Run by the environment of ``install_openapi_tools`` in scripts/test: does a server do what its document says?

    python openapi_check.py http://127.0.0.1:8000

Exits with 0, or with 1 and what was found. Imports nothing of this project, whose environment has other packages.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

import openapi_spec_validator
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks as openapi_checks

EXAMPLES = 12
CHECKS = [
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.response_headers_conformance,
]


def main(base_url: str) -> int:
    """Validate the document of the server at ``base_url``, then send it requests made from the document."""
    with urllib.request.urlopen(f"{base_url}/openapi.json", timeout=10) as answer:
        document = json.load(answer)
    openapi_spec_validator.validate(document)
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=base_url)
    count = 0
    failures: list[str] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        count += 1
        for mode in GenerationMode:
            try:
                _try_out(operation, mode)
            except Unsatisfiable:
                continue  # An operation without parameters and body can be asked in no wrong way.
            except Exception as error:
                failures.append(f"{operation.method.upper()} {operation.path}, {mode}: {error}")
    print(json.dumps({"operations": count, "failures": failures}))
    return 1 if failures else 0


def _try_out(operation: Any, mode: GenerationMode) -> None:
    limits = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @limits
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    holds()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
