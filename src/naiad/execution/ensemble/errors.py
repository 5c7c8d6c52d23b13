"""Errors of an ensemble's steps, as its caller is told them: the member's own status, with the step and the model."""

from __future__ import annotations

from naiad.errors import NaiadError
from naiad.request import request_label
from naiad.scheduling.ensemble.graph import EnsembleStep, Graph


def in_ensemble(ensemble: str, request_id: str, error: NaiadError) -> NaiadError:
    """What a request failed with between its steps, of the same class."""
    return _again(error, f"in ensemble '{ensemble}', {request_label(request_id)}{error}")


def in_step(ensemble: str, step: EnsembleStep, error: NaiadError) -> NaiadError:
    """What a step failed with, of the same class."""
    return _again(error, f"in ensemble '{ensemble}', step {step.index} (model '{step.model}'): {error}")


def at_inputs(ensemble: str, step: EnsembleStep, graph: Graph, error: NaiadError) -> NaiadError:
    """The same for tensors that do not fit the inputs of the step's model: also says which tensors these are."""
    names = ", ".join(f"'{name}' is '{graph.tensors[tensor]}'" for name, tensor, _ in step.inputs)
    return _again(in_step(ensemble, step, error), f"{in_step(ensemble, step, error)} In the ensemble, input {names}.")


def _again(error: NaiadError, text: str) -> NaiadError:
    """An error of the same class and with the same attributes, whatever its class takes."""
    again: NaiadError = error.__class__.__new__(error.__class__)
    again.__dict__.update(error.__dict__)
    again.args = (text,)
    return again
