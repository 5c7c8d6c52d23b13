"""How many instances, and how many processes, a model may ask for."""

from __future__ import annotations

from pathlib import Path

import psutil

from naiad.backends.shared.worker_limits import MAX_PROCESSES
from naiad.testing import serving
from support.python_models import DOUBLES, write_python_model
from support.served_models import identity, numbers, write_model

GROUP = "instance_group [ {{ kind: KIND_CPU count: {} }} ]"
IN_PROCESSES = 'parameters { key: "execution" value { string_value: "process" } }'


def test_too_many_instances_are_refused_before_any_is_made(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_model(models, "same", identity())
    for name, extra in (("threads", ""), ("hosted", IN_PROCESSES)):
        write_model(models, name, identity(extra=GROUP.format(MAX_PROCESSES) + extra))
    write_model(models, "many", identity(extra=199 * GROUP.format(4096)))
    python = write_python_model(models, "python", DOUBLES)
    config = python / "config.pbtxt"
    config.write_text(config.read_text() + GROUP.format(MAX_PROCESSES))
    control = ("--model-control-mode=explicit", "--load-model=same")
    with serving(tmp_path / "log", "--model-repository", models, *control) as server:
        text = f"instances, each of which is a process, and a model has at most {MAX_PROCESSES} processes"
        for name in ("python", "hosted"):
            answer = server.post(f"/v2/repository/models/{name}/load", {})
            assert answer.status == 400
            assert f"'{name}' ask for {MAX_PROCESSES + 1} {text}" in answer.error
        answer = server.post("/v2/repository/models/many/load", {})
        assert answer.status == 400
        assert "have 815105 instances together, and a model has at most 4096" in answer.error
        assert len(psutil.Process(server.process.pid).children(recursive=True)) < 10
        assert server.post("/v2/repository/models/threads/load", {}).status == 200
        assert server.infer("threads", numbers([1])).status == 200
        assert server.infer("same", numbers([1])).status == 200
