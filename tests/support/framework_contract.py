"""What every backend must do also where its instances are processes, or threads of a shared one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from naiad.backend_api.backend import BackendContext
from naiad.config.spec import ModelSpec
from naiad.execution.worker.shared_process import SharedProcesses
from support.backend_contract import BackendContract, Executes, assert_same, context, group, spec
from support.frameworks_in_processes import Hosted, hosted

KEEPER = """backend: "identity" input { name: "A" data_type: TYPE_FP32 dims: 1 }
output { name: "X" data_type: TYPE_FP32 dims: 1 } """


@pytest.fixture(scope="module")
def shared_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedProcesses]:
    """Shared processes whose unnamed one lives for all tests of a file, which imports this."""
    processes = SharedProcesses()
    at = context(tmp_path_factory.mktemp("keeper") / "none")
    with hosted("identity", at, spec(KEEPER), "shared", processes):
        yield processes


class HostedContract(BackendContract):
    """The contract of all backends, kept through processes."""

    way: str

    @pytest.fixture(autouse=True)
    def _with_shared(self, shared_processes: SharedProcesses) -> None:
        self.shared = shared_processes

    def running(self, at: BackendContext, model: ModelSpec) -> AbstractContextManager[Executes]:
        return hosted(self.name, at, model, self.way, self.shared)

    def test_instances_in_threads_do_not_mix(self, tmp_path: Path) -> None:
        """Three instances and three callers, whose requests may run anywhere."""
        case = self.echo(tmp_path, "FP32", 3)
        model = replace(case.model, instance_groups=(replace(group(case.model), count=3),))
        failures: list[BaseException] = []
        with hosted(self.name, case.at, model, self.way, self.shared) as found:
            threads = [threading.Thread(target=self._ask_often, args=(found, i, failures)) for i in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()
        assert failures == []

    def _ask_often(self, found: Hosted, index: int, failures: list[BaseException]) -> None:
        try:
            a, b = (np.full((2, 3), index, np.float32), np.full((2, 3), -index, np.float32))
            for _ in range(100):
                result = found.execute({"A": a, "B": b}, ("X", "Y"))
                assert_same(result["X"], a)
                assert_same(result["Y"], b)
        except BaseException as error:
            failures.append(error)
