"""The backend ``fil``: forests of XGBoost, LightGBM, treelite and scikit-learn, on treelite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from naiad.backend_api.backend import Backend, BackendContext, Instance
from naiad.backends.fil.estimator import load_estimator
from naiad.backends.fil.forest import Forest, load_forest
from naiad.backends.fil.formats import JOBLIB, SKOPS, format_of, model_file
from naiad.backends.fil.instance import ForestInstance, usable_threads
from naiad.backends.fil.settings import ForestSettings, read_settings
from naiad.backends.fil.signature import OUTPUT, Finish, finish_of, refuse_shapley, signature_of, widths
from naiad.backends.shared.completion import complete
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.shared.signature import check_signature
from naiad.config.freeze import parameters
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.config.spec import InstanceGroupSpec, ModelSpec

# A row is a few numbers, and a thousand take a hundredth of a second.
_DEFAULT_BATCH_SIZE: Final = 1024


class ForestBackend(Backend):
    """One forest, which all instances share."""

    framework = "treelite"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._forest: Forest | None = None
        self._source: tuple[object, ...] = ()
        self._finish: Finish | None = None
        self._threads = 1

    def complete(self, config: Any) -> None:
        """Fill the configuration in from the forest, which ``start`` then uses."""
        refuse_shapley(self.context.model, (t.name for t in config.output))
        settings = read_settings(self.context, parameters(config))
        forest = self._load(settings)
        usual = widths(self.context.model, forest, settings)[0]
        reader = ParameterReader(self.context.model, self.context.backend_config, "backend config setting")
        size = reader.integer("default-max-batch-size", _DEFAULT_BATCH_SIZE)
        complete(config, signature_of(forest, usual), size)

    def start(self, spec: ModelSpec) -> None:
        """Load the forest, unless ``complete`` has, and check ``spec`` against it."""
        _check_devices(spec)
        refuse_shapley(spec.name, spec.outputs)
        settings = read_settings(self.context, spec.parameters)
        forest = self._load(settings)
        possible = widths(spec.name, forest, settings)
        width = _configured_width(spec)
        chosen = width if width in possible else possible[0]
        tensors = signature_of(forest, chosen)
        check_signature(spec, tensors.inputs, tensors.outputs)
        self._finish = finish_of(forest, settings, chosen)
        self._threads = settings.threads

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """Other instance groups, all of them on the processor."""
        super().regroup(spec, config)
        _check_devices(spec)

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance on the processor."""
        if self._forest is None or self._finish is None:
            raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
        threads = usable_threads(self.context.model, self._forest, self._threads)
        return ForestInstance(self._forest, self._finish, threads)

    def close(self) -> None:
        """Release the forest that the instances shared."""
        self._forest = None

    def _load(self, settings: ForestSettings) -> Forest:
        """The forest; the one that is loaded where the same file and settings ask for it."""
        model = self.context.model
        file = model_file(self.context, settings.file_format)
        file_format = format_of(model, file, settings.file_format)
        source = (file, file_format, settings.unknown_fields)
        if self._forest is None or source != self._source:
            self._source = source
            if file_format in (SKOPS, JOBLIB):
                self._forest = load_estimator(model, file, file_format, settings.pickles)
            else:
                self._forest = load_forest(model, file, file_format, settings.unknown_fields)
        return self._forest


def _configured_width(spec: ModelSpec) -> int:
    tensor = spec.outputs.get(OUTPUT)
    if tensor is None:
        return 0
    dims = tensor.dims if tensor.reshape is None else tensor.reshape
    return dims[-1] if dims else 0


def _check_devices(spec: ModelSpec) -> None:
    for group in spec.instance_groups:
        if group.kind == "KIND_GPU":
            raise ModelLoadError(
                f"model '{spec.name}': instance group '{group.name}' has kind KIND_GPU, and the backend fil runs "
                f"forests on the processor; write kind: KIND_CPU"
            )
