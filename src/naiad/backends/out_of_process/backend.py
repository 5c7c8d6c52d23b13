"""The server's side of a framework's model that runs in processes of its own. The framework is imported there only."""

from __future__ import annotations

import base64
import logging
import os
import sys
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.backend_api.backend import Backend, BackendContext, Instance, WorkerSpec
from naiad.backends.environments.environment import Environment
from naiad.backends.out_of_process import program
from naiad.backends.out_of_process.load_command import LoadCommand, pack
from naiad.backends.out_of_process.mode import PROCESS, SHARED, Execution
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.shared.worker_limits import check_processes
from naiad.config.freeze import instance_group
from naiad.errors import InternalError
from naiad.execution.worker.framework_instance import FrameworkSpec
from naiad.execution.worker.process import WorkerProcess
from naiad.execution.worker.shared_process import SharedProcessSlot

if TYPE_CHECKING:
    from naiad.backends.out_of_process.model_environment import EnvironmentRequest
    from naiad.config.spec import InstanceGroupSpec, ModelSpec
    from naiad.execution.worker.shared_process import SharedProcesses
    from naiad.processes.affinity import Affinity

logger = logging.getLogger("naiad")

PROGRAM: Final = Path(program.__file__)
SETTING: Final = "stub-timeout-seconds"
_SILENCE_S: Final = 30
# For a load that never ends: in a thread of the server a model may take any time.
_LOAD_S: Final = 3600
_keys = count(1)


class OutOfProcessBackend(Backend):
    """One model version whose instances are processes, or threads of a shared one.

    The process that completes and checks the configuration goes on as the one of the first instance, so that nothing
    is loaded twice.

    ``--backend-config=<backend>,stub-timeout-seconds=N``: how long a process may give no sign of life (30 by default),
    and how long it may take to load the model (an hour by default).

    Args:
        request: the environment that the model asks for, None for the server's own.

    Attributes:
        execution: where the instances run.
    """

    def __init__(
        self,
        backend: str,
        context: BackendContext,
        execution: Execution,
        shared: SharedProcesses,
        request: EnvironmentRequest | None = None,
    ) -> None:
        # A plain dictionary, since the context is pickled for the worker.
        super().__init__(replace(context, backend_config=dict(context.backend_config)))
        self._backend = backend
        self.execution = execution
        self._shared = shared
        # One for each load: in a shared process a reload must not get the backend of the version that drains.
        self._key = str(next(_keys))
        self._request = request
        self._environment: Environment | None = None
        self._spec: ModelSpec | None = None
        self._uses_gpus: bool | None = None
        self._lock = threading.Lock()
        self._begun: WorkerProcess | None = None
        reader = ParameterReader(context.model, context.backend_config, "backend config setting")
        self._silence_s = reader.integer(SETTING, _SILENCE_S, 1)
        self._load_s = reader.integer(SETTING, _LOAD_S, 1)

    def uses_gpus(self) -> bool:
        """What the framework's process says of its framework, asked once."""
        if self._uses_gpus is None:
            content = self._obey(self._load_command("uses_gpus", None, None), self.context.policies.elsewhere)
            self._uses_gpus = bool(content["uses_gpus"])
        return self._uses_gpus

    def complete(self, config: Any) -> None:
        """Let the framework's process fill the configuration in."""
        groups = [instance_group(group) for group in config.instance_group]
        content = self._obey(self._load_command("complete", None, config), self.context.policies.first(groups))
        config.ParseFromString(base64.b64decode(content["config"]))

    def start(self, spec: ModelSpec) -> None:
        """Let the framework's process load the model and check that ``spec`` fits it."""
        self._check_processes(spec)
        self._spec = spec
        first = self.context.policies.first(spec.instance_groups)
        content = self._obey(self._load_command("start", spec, self.config), first)
        if self._request is not None:
            self._log_versions(content)

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """Start workers with the new groups from now on."""
        self._check_processes(spec)
        super().regroup(spec, config)
        self._spec = spec

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """Not called: every instance is in a process."""
        raise InternalError(f"instances of model '{self.context.model}' are not in this process")

    def worker_spec(self, group: InstanceGroupSpec, index: int) -> FrameworkSpec:
        """How the worker of an instance is started, or its slot in a shared one."""
        if self._spec is None:
            raise InternalError(f"model '{self.context.model}': start() comes before worker_spec()")
        # Its group first: what a backend makes for the first instance is made for this one.
        others = [other for other in self._spec.instance_groups if other != group]
        spec = replace(self._spec, instance_groups=(group, *others))
        command = self._load_command("serve", spec, self.config)
        command = replace(command, group=group, index=index, name=f"{group.name}_{index}")
        return self._worker_spec(command, self.context.policies.affinity(group, index))

    def close(self) -> None:
        """End the process that was to be the first instance's, if none took it over."""
        with self._lock:
            process, self._begun = self._begun, None
        if process is not None:
            process.end()
            process.close()

    def _log_versions(self, content: Any) -> None:
        environment = self._resolved()
        python = f"Python {content['python']} ({environment.python})"
        framework = content.get("framework")
        logger.info("model '%s' runs on %s", self.context.model, f"{framework}, {python}" if framework else python)

    def _check_processes(self, spec: ModelSpec) -> None:
        if self.execution.mode == PROCESS:
            check_processes(spec)

    def _obey(self, command: LoadCommand, affinity: Affinity) -> Any:
        """Have the first process, which runs there, execute a load command; the content of its reply."""
        spec = self._worker_spec(command, affinity)
        process = self._open(f"{self.context.model}_{self.context.version}", spec)
        try:
            _, content = process.begin()
        except BaseException:
            process.close()
            raise
        # One that began elsewhere, as the configuration was not complete, is of no use any more.
        self.close()
        self._begun = process
        return content

    def _load_command(self, step: str, spec: ModelSpec | None, config: Any) -> LoadCommand:
        written = b"" if config is None else config.SerializeToString()
        remedy = "" if self._request is None else self._request.remedy
        return LoadCommand(step, self._key, self._backend, self.context, written, spec, remedy=remedy)

    def _resolved(self) -> Environment:
        # Once for all instances: to unpack or to build an environment may take minutes.
        if self._environment is None:
            own = Environment(Path(sys.executable), dict(os.environ))
            self._environment = own if self._request is None else self._request.resolved()
        return self._environment

    def _worker_spec(self, command: LoadCommand, affinity: Affinity) -> FrameworkSpec:
        environment = self._resolved()
        command = replace(command, affinity=affinity)
        if self.execution.mode == SHARED:
            # The process belongs to all of its instances; each thread goes where its instance belongs.
            affinity = self.context.policies.elsewhere
        return FrameworkSpec(
            python=environment.python,
            env=environment.env,
            holds=environment,
            load_command=pack(command),
            start_s=self._load_s,
            program=PROGRAM,
            silence_s=self._silence_s,
            setting=f"--backend-config={self._backend},{SETTING}=N",
            open=self._open,
            affinity=affinity,
        )

    def _open(self, name: str, spec: WorkerSpec) -> WorkerProcess:
        """The process that completed the configuration, or a new one."""
        # Instances start in threads of their own: one of them gets the process that has loaded the model already.
        with self._lock:
            process, self._begun = self._begun, None
            if process is not None and process.spec.affinity != spec.affinity:
                # It began where another instance belongs.
                process, self._begun = None, process
        if process is not None:
            process.name, process.spec = name, spec
            return process
        if self.execution.mode == SHARED:
            return SharedProcessSlot(self._shared, self.execution.group, name, spec)
        return WorkerProcess(name, spec)
