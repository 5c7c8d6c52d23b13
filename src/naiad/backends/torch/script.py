"""TorchScript models: ``model.pt``, platform ``pytorch_libtorch``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.torch.instance import CallPlan, TorchInstance
from naiad.backends.torch.model import LoadedModules, TorchModel
from naiad.backends.torch.plan import call_plan, no_tensors
from naiad.backends.torch.session import load_module, memory_effects
from naiad.backends.torch.signature import read_schema
from naiad.backends.torch.trial import check_run, shapes_only
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.backend_api.backend import BackendContext, Instance
    from naiad.config.spec import ModelSpec


_LARGE_GRAPH: Final = 2000
"""From so many nodes on the first two requests would each wait some 0.2 s or more for the optimiser."""


class ScriptModel(TorchModel):
    """A TorchScript file; every instance has a module of its own unless ENABLE_WEIGHT_SHARING is set."""

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._plan: CallPlan | None = None
        self._settles = False
        self._loaded = LoadedModules(self._load_on)

    def complete(self, config: Any) -> None:
        """Fills nothing in: TorchScript has no names, types or shapes. Refuses a configuration without tensors."""
        if not config.input or not config.output:
            # Loaded for the error text alone, which names the arguments.
            schema = read_schema(load_module(self._context.model, self._context.model_path, "cpu"))
            alone = self._context.model_path if self._context.version_directory is None else None
            raise no_tensors(self._context.model, schema, alone)

    def start(self, spec: ModelSpec, device: str | None) -> None:
        """Load the first module and fit the configuration to its ``forward``."""
        reader = ParameterReader(spec.name, spec.parameters)
        self._loaded.share = reader.boolean("ENABLE_WEIGHT_SHARING", False)
        module = self._loaded.first(device)
        graph = module.inlined_graph
        plan = self._plan = call_plan(spec, read_schema(module), memory_effects(graph), reader)
        # On a GPU kernels are compiled as well, for graphs of any size.
        self._settles = device != "cpu" or sum(1 for _ in graph.nodes()) >= _LARGE_GRAPH
        if not plan.effects.writes_state:
            on_gpu = device is not None and device != "cpu"
            trial = TorchInstance(module.forward, plan, device if on_gpu else None)
            check_run(spec, trial, lambda: shapes_only(self._load_on("meta").forward, plan))

    def instance(self, device: str | None) -> Instance:
        """An instance with a module of its own, or the shared one."""
        if self._plan is None:
            raise ModelLoadError(f"model '{self._context.model}': start() comes before instance()")
        on_gpu = device is not None and device != "cpu"
        return TorchInstance(self._loaded.take(device).forward, self._plan, device if on_gpu else None)

    @property
    def settling_runs(self) -> int:
        """Two: the profiling executor watches the first run and optimises in the second.

        None for a small graph on the processor, where two runs take longer than its optimisation.
        """
        takes_zeros = self._plan is not None and not self._plan.effects.writes_state and not self._plan.strings
        return 2 if self._settles and takes_zeros else 0

    def advice(self) -> str:
        """How to move on from a format that torch has deprecated."""
        return (
            f"{self._context.model_path.name} is TorchScript, which torch has deprecated; it goes on working here. To "
            "replace it, write torch.export.save(torch.export.export(model, example, dynamic_shapes=...), 'model.pt2') "
            'and platform: "torch_aoti"'
        )

    def close(self) -> None:
        """Release the modules that the instances shared."""
        self._loaded.clear()

    def _load_on(self, device: str | None) -> Any:
        return load_module(self._context.model, self._context.model_path, device)
