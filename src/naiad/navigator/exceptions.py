"""The original's exceptions: what its scripts catch. Each is a ``ConvertError``, as all errors of a conversion are."""

from naiad.convert.errors import ConvertError as ModelNavigatorError

__all__ = [
    "ModelNavigatorBackwardCompatibilityError",
    "ModelNavigatorCommandNotExecutable",
    "ModelNavigatorConfigurationError",
    "ModelNavigatorConfigurationWarning",
    "ModelNavigatorDeployerError",
    "ModelNavigatorEmptyPackageError",
    "ModelNavigatorError",
    "ModelNavigatorMissingSourceModelError",
    "ModelNavigatorModuleNotOptimizedError",
    "ModelNavigatorNotFoundError",
    "ModelNavigatorProfilingError",
    "ModelNavigatorRuntimeAnalyzerError",
    "ModelNavigatorRuntimeError",
    "ModelNavigatorTensorTypeError",
    "ModelNavigatorUserInputError",
    "ModelNavigatorWarning",
    "ModelNavigatorWrongParameterError",
]


class ModelNavigatorConfigurationError(ModelNavigatorError):
    """A setting has no such value, or settings contradict each other."""


class ModelNavigatorEmptyPackageError(ModelNavigatorError):
    """The package has no format."""


class ModelNavigatorNotFoundError(ModelNavigatorError):
    """A model, a file or a format is not there."""


class ModelNavigatorRuntimeAnalyzerError(ModelNavigatorError):
    """No strategy finds a format."""


class ModelNavigatorUserInputError(ModelNavigatorError):
    """The model, the samples or a setting cannot be used."""


class ModelNavigatorWrongParameterError(ModelNavigatorUserInputError):
    """An argument has no such value."""


# Nothing here raises those that follow: scripts name them in what they catch.


class ModelNavigatorBackwardCompatibilityError(ModelNavigatorError):
    """A package is of a release that cannot be read."""


class ModelNavigatorCommandNotExecutable(ModelNavigatorError):  # noqa: N818  its name there
    """A step cannot run here."""


class ModelNavigatorDeployerError(ModelNavigatorError):
    """A model cannot be put into a repository."""


class ModelNavigatorMissingSourceModelError(ModelNavigatorError):
    """A package has no source model."""


class ModelNavigatorModuleNotOptimizedError(ModelNavigatorError):
    """A module has to be optimized first."""


class ModelNavigatorProfilingError(ModelNavigatorError):
    """A format could not be measured."""


class ModelNavigatorRuntimeError(ModelNavigatorError):
    """A format failed while it ran."""


class ModelNavigatorTensorTypeError(ModelNavigatorError):
    """A tensor is of another library than expected."""


class ModelNavigatorWarning(ModelNavigatorError, Warning):  # noqa: N818  its name there
    """Something that may be a mistake."""


class ModelNavigatorConfigurationWarning(ModelNavigatorWarning):
    """A setting without an effect."""
