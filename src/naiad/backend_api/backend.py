"""The contract between a loaded model version and the backend, the framework that runs it.

A backend is created, completes the configuration, is started and closed in a loading thread. Each ``Instance`` is then
used by exactly one thread of its own. Neither touches the event loop or any state of the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from naiad.backend_api.host_policy import NO_POLICIES, HostPolicies
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.processes.affinity import ANYWHERE, Affinity
from naiad.tensor.device_tensor import Device, DeviceTensor

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Tensors by name. BYTES tensors are object arrays whose elements are ``bytes``."""


@dataclass(frozen=True, slots=True)
class BackendContext:
    """The files of a model version and the settings under which it is loaded.

    ``version_directory`` is None for a model that is a single file without a repository; ``model_path`` is the file or
    folder named by ``default_model_filename``. ``backend_config`` has the ``--backend-config`` settings of this
    backend, global ones included. ``cores`` is the number of processor cores that the whole server may use,
    ``policies`` say which of them an instance has. ``pinned_bytes`` is the most pinned memory for copies to GPUs.
    """

    model: str
    version: int
    model_path: Path
    version_directory: Path | None
    backend_config: Mapping[str, str]
    cores: int
    policies: HostPolicies = NO_POLICIES
    pinned_bytes: int = 0


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The command, environment and limits of a worker process.

    Attributes:
        python: the interpreter.
        env: all environment variables.
        load_command: the content of its ``INIT`` frame.
        start_s: the longest time until it is ready.
        holds: objects that must live as long as it runs.
        execute_s: the longest run of a batch; 0 for no limit.
        memory_bytes: the most private memory; 0 for no limit. ``load_command`` has the same number.
        program: the file that the interpreter runs; None for the program of Python models.
        silence_s: the longest time without a sign of life once it is ready; 0 for ``start_s``.
        setting: the option that raises the time limit, for the error text.
        affinity: where it runs, and all that it starts.
    """

    python: Path
    env: Mapping[str, str]
    load_command: Mapping[str, Any]
    start_s: float
    holds: object = None
    execute_s: float = 0.0
    memory_bytes: int = 0
    program: Path | None = None
    silence_s: float = 0.0
    setting: str = "--backend-config=python,stub-timeout-seconds=N"
    affinity: Affinity = ANYWHERE


class Instance(ABC):
    """One executable copy of a model. ``execute`` is called by one thread only, never twice at a time.

    Attributes:
        takes_packed: large tensors of BYTES may be ``PackedStrings``, which it does not look into.
        device: where ``execute_on_device`` runs; None for an instance without it.
        cuts_rows: its tensors on the device can be cut into rows, and ``join`` puts them together.
        output_memory: a function that returns memory for an output of so many bytes, or None where there is none. Set
            by whoever has memory from which outputs are sent without a copy; an instance need not use it.
    """

    takes_packed: ClassVar[bool] = False
    device: Device | None = None
    cuts_rows: ClassVar[bool] = False
    output_memory: Callable[[int], np.ndarray[Any, Any] | None] | None = None

    @abstractmethod
    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """Run the model once.

        Args:
            inputs: batched input arrays by name (shape [rows, ...] when the model batches). They may be read-only and
                may share memory with the request: do not write to them or store them.
            outputs: the names of the requested outputs; more may be returned.

        Returns:
            Arrays by output name, in the numpy dtype of the model's specification. A later call must not reuse them.

        Raises:
            BackendError: the model failed; the text is the framework's own.
        """

    def execute_on_device(self, inputs: Arrays, outputs: Sequence[str], resident: frozenset[str]) -> Arrays:
        """Run the model once, with ``DeviceTensor`` objects on ``device`` as inputs and as the outputs ``resident``.

        When it returns, these outputs are complete and the inputs have been read.
        """
        # Nobody calls it while ``device`` is None.
        raise NotImplementedError

    def join(self, tensors: Sequence[DeviceTensor]) -> DeviceTensor:
        """Tensors on ``device`` that differ in their first dimension only, one behind the other, without a copy to the
        processor's memory. For an instance with ``cuts_rows``.
        """
        # Nobody calls it without ``cuts_rows``.
        raise NotImplementedError

    def close(self) -> None:
        """Release the instance's resources. Called once, in the instance's own thread."""
        return


class Backend(ABC):
    """One model version inside one framework.

    Attributes:
        framework: the module that it imports to load anything; "" for none in this process.
    """

    framework: ClassVar[str] = ""

    def __init__(self, context: BackendContext) -> None:
        self.context = context
        self.config: Any = None
        """The completed configuration message, from ``start`` on."""

    def complete(self, config: Any) -> None:
        """Fill in what the configuration message leaves open (inputs, outputs, max_batch_size, dynamic_batching) from
        the model itself. Not called with ``--disable-auto-complete-config``.

        Raises:
            ConfigError: the configuration contradicts the model.
            ModelLoadError: the model cannot be read.
        """
        return

    def uses_gpus(self) -> bool:
        """Whether its framework, as it is installed, runs on the GPUs of this machine: KIND_AUTO is then a GPU.

        Called where there is one, before the configuration is completed.
        """
        return False

    @abstractmethod
    def start(self, spec: ModelSpec) -> None:
        """Load the model and check that ``spec`` fits it.

        Raises:
            ModelLoadError: the model cannot be loaded or its tensors differ from the configuration; the text shows both
                sides in full.
        """

    def try_out(self) -> str:
        """Check what ``start`` leaves to the instances; called by ``naiad check`` after ``start``.

        Returns:
            The check that was skipped, and why; "" when an instance could be created.

        Raises:
            ModelLoadError: no instance could be created.
        """
        return ""

    def advice(self) -> str:
        """What ``naiad check`` says of a model without problems, "" for nothing. Called after ``start``."""
        return ""

    @abstractmethod
    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """A new instance; called in the thread that will use it."""

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """Use other instance groups, for instances that are created from now on. Nothing else has changed.

        Args:
            spec: the specification with these groups.
            config: the completed configuration message with them.

        Raises:
            ModelLoadError: instances of such groups cannot be created. The earlier groups are then set again.
        """
        self.config = config

    def worker_spec(self, group: InstanceGroupSpec, index: int) -> WorkerSpec | None:
        """How the worker of an instance is started; None for a backend whose instances run in the server."""
        return None

    @property
    def runs_inline(self) -> bool:
        """Whether an execution never blocks and takes a few microseconds, so that it may run on the event loop. Called
        after ``start``.

        Such an instance accepts its inputs unaligned, as views of a request; returns outputs that fit the
        specification, since those of a request that runs alone are not checked; and may run a request again after an
        error.
        """
        return False

    @property
    def runs_by_shape(self) -> bool:
        """Whether the time of a run depends on the shapes of its inputs alone, never on their values, and any thread
        may run an instance. The event loop then makes those runs itself that are shorter than the way into the
        instance's thread. Called after ``start``.
        """
        return False

    def close(self) -> None:
        """Release the resources that the instances share. Called once, after every instance is closed."""
        return


def threads_per_instance(context: BackendContext, instance_count: int, affinity: Affinity = ANYWHERE) -> int:
    """The framework threads of one instance: the cores divided among the model's instances, at least one.

    With ``affinity`` they are its cores, and ``instance_count`` is the number of instances that have it.
    """
    cores = len(affinity.cores) or context.cores
    return max(1, cores // max(1, instance_count))


def threads_of_group(context: BackendContext, spec: ModelSpec, group: InstanceGroupSpec, index: int) -> int:
    """The framework threads of the ``index``-th instance of a group: its cores, divided among those that have them."""
    affinity = context.policies.affinity(group, index)
    return threads_per_instance(context, context.policies.uniform(spec.instance_groups, affinity), affinity)
