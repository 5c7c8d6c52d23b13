"""The original's exceptions: what its scripts catch. Each is a ``ConvertError``, as all errors of a conversion are."""

from naiad.convert.errors import ConvertError as ModelNavigatorError

__all__ = [
    "ModelNavigatorEmptyPackageError",
    "ModelNavigatorError",
    "ModelNavigatorNotFoundError",
    "ModelNavigatorRuntimeAnalyzerError",
    "ModelNavigatorUserInputError",
    "ModelNavigatorWrongParameterError",
]


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
