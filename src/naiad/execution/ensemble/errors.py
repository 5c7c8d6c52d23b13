"""Errors of an ensemble's steps for its caller: the member's own status, with the step and the model in the text."""

from __future__ import annotations

from naiad.errors import NaiadError
from naiad.request import request_label
from naiad.scheduling.ensemble.graph import EnsembleStep, Graph


def in_ensemble(ensemble: str, request_id: str, error: NaiadError) -> NaiadError:
    """The error of a request that failed between its steps, of the same class."""
    return _again(error, f"in ensemble '{ensemble}', {request_label(request_id)}{error}")


def in_step(ensemble: str, step: EnsembleStep, error: NaiadError) -> NaiadError:
    """The error of a step, of the same class."""
    return _again(error, f"in ensemble '{ensemble}', step {step.index} (model '{step.model}'): {error}")


def at_inputs(ensemble: str, step: EnsembleStep, graph: Graph, error: NaiadError) -> NaiadError:
    """The error of a step whose tensors do not fit the inputs of its model; names these tensors."""
    names = ", ".join(f"'{name}' is '{graph.tensors[tensor]}'" for name, tensor, _ in step.inputs)
    return _again(in_step(ensemble, step, error), f"{in_step(ensemble, step, error)} In the ensemble, input {names}.")


def _again(error: NaiadError, text: str) -> NaiadError:
    """A copy of an error with another text, of the same class and with the same attributes."""
    # Not through the constructor: each class of errors has arguments of its own.
    again: NaiadError = error.__class__.__new__(error.__class__)
    again.__dict__.update(error.__dict__)
    again.args = (text,)
    return again
