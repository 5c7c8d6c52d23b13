"""Where the instances of a model run: in threads of the server, in a process each, or in one that they share."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from naiad.backends import registry
from naiad.backends.environments.parameters import requested
from naiad.backends.out_of_process.mode import PROCESS, THREAD, Execution
from naiad.backends.shared.parameters import ParameterReader
from naiad.config.freeze import accelerators, instance_group, parameters
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.backend_api.backend import Backend, BackendContext
    from naiad.execution.worker.shared_process import SharedProcesses

logger = logging.getLogger("naiad")

KEY: Final = "execution"
DEFAULT: Final = THREAD
EXPECTED: Final = '"thread", "process" or "shared" (a group of its own: "shared:NAME")'
_PYTHON_EXPECTED: Final = (
    '"process", "thread" or nothing: each instance of a Python model is a process of its own, or a thread of the '
    "server if the model asks for it"
)
_PROGRAM_EXPECTED: Final = '"process" or nothing: the instances of this backend are processes'
_STAYS: Final = "the models of the backend '{}' run on the loop of the server"
_HOW_TO_OWN_PROCESS: Final = (
    'write execution=process: parameters { key: "execution" value: { string_value: "process" } }'
)
_KNOWN: Final = re.compile(r"thread|process|shared(:[A-Za-z0-9_.-]{1,64})?")


def create(backend: str, context: BackendContext, config: Any, shared: SharedProcesses) -> Backend:
    """The backend of a model version, inside the server or in front of processes of its own.

    Args:
        backend: its name.
        config: the configuration message, whose parameter ``execution`` counts before ``--backend-config``.
        shared: the server's shared processes.

    Raises:
        BackendUnavailableError: the name is unknown or, inside the server, its framework is not installed.
        ModelLoadError: ``execution`` has a wrong value, or does not fit an environment that the model asks for.
    """
    given = parameters(config)
    if registry.settings_name(backend) == registry.PYTHON:
        return _create_python(backend, context, given)
    chosen = execution_of(context, given)
    if registry.stays(backend):
        _check_on_loop(backend, context, given, chosen)
        chosen = Execution(THREAD)
    elif policy := _confining_policy(backend, context, config):
        chosen = _confined(backend, context, given, chosen, policy)
    if chosen.mode != PROCESS and (asked := requested(given)):
        raise ModelLoadError(
            f"model '{context.model}': parameter '{asked}' is for a model whose instances are processes of their own, "
            f'and its execution is "{chosen.mode}"; {_HOW_TO_OWN_PROCESS}'
        )
    if chosen.mode == THREAD:
        return registry.create(backend, context)
    # Imported here: a server whose models all run in threads does not pay for it.
    from naiad.backends.out_of_process.backend import OutOfProcessBackend
    from naiad.backends.out_of_process.model_environment import environment_request

    return OutOfProcessBackend(backend, context, chosen, shared, environment_request(backend, context, given))


def execution_of(context: BackendContext, given: dict[str, str]) -> Execution:
    """What a model's parameters say, or else the settings of its backend, or else the default.

    Raises:
        ModelLoadError: it is none of the three.
    """
    reader = ParameterReader(context.model, given)
    if KEY not in given:
        # For the error text: it names the place where the value stands.
        reader = ParameterReader(context.model, context.backend_config, "backend config setting")
    text = reader.text(KEY)
    if text is None:
        return Execution(DEFAULT)
    if not _KNOWN.fullmatch(text):
        raise reader.refused(KEY, EXPECTED)
    way, _, group = text.partition(":")
    return Execution(way, group)


def _confining_policy(backend: str, context: BackendContext, config: Any) -> str:
    """The host policy whose cores only a process of the model's own can keep to; "" without one."""
    uses_openvino = backend == "onnxruntime" and any(a.name == "openvino" for a in accelerators(config))
    if not (registry.has_one_pool(backend) or uses_openvino):
        return ""
    return context.policies.has_cores([instance_group(group) for group in config.instance_group])


def _confined(
    backend: str, context: BackendContext, given: dict[str, str], chosen: Execution, policy: str
) -> Execution:
    """A process of its own for each instance.

    Raises:
        ModelLoadError: the model, or the settings, ask for something else.
    """
    if chosen.mode == PROCESS:
        return chosen
    if KEY in given or KEY in context.backend_config:
        raise ModelLoadError(
            f"model '{context.model}' has the cores of host policy '{policy}' and execution \"{chosen.mode}\", and "
            f"{backend} has one pool of threads for all models of a process: it can keep to these cores in a "
            f"process of its own only; {_HOW_TO_OWN_PROCESS}"
        )
    logger.info(
        "model '%s' runs in a process of its own, to keep to the cores of host policy '%s': %s has one pool "
        "of threads for all models of a process",
        context.model,
        policy,
        backend,
    )
    return Execution(PROCESS)


def _check_on_loop(backend: str, context: BackendContext, given: dict[str, str], chosen: Execution) -> None:
    """Refuse processes and environments for models on the loop of the server, all in one error."""
    # The parameter of a model is a mistake; a setting is for all models and does not concern this one.
    wrong = [KEY] if KEY in given and chosen.mode != THREAD else []
    if asked := requested(given):
        wrong.append(asked)
    if wrong:
        found = " and ".join(f"parameter '{name}' is \"{given[name]}\"" for name in wrong)
        raise ModelLoadError(
            f"model '{context.model}': {found}, expected {'neither' if len(wrong) > 1 else 'nothing'}: "
            f"{_STAYS.format(backend)}, never in a process or an environment of their own"
        )


def _create_python(backend: str, context: BackendContext, given: dict[str, str]) -> Backend:
    """In processes, or in threads if the model itself asks for it: a default for all models does not apply."""
    if given.get(KEY) == THREAD and not registry.has_own_program(backend):
        return registry.create_in_thread(backend, context)
    made = registry.create(backend, context)
    if given.get(KEY, PROCESS) != PROCESS:
        expected = _PROGRAM_EXPECTED if registry.has_own_program(backend) else _PYTHON_EXPECTED
        raise ParameterReader(context.model, given).refused(KEY, expected)
    if KEY not in given and execution_of(context, given).mode not in (PROCESS, DEFAULT):
        logger.info(
            "model '%s': --backend-config execution=%s does not concern it: instances of Python models are processes",
            context.model,
            context.backend_config[KEY],
        )
    return made
