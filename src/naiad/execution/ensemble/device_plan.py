"""Which tensors of an ensemble stay on a device between its steps; decided once for a compiled plan."""

from __future__ import annotations

from naiad.config.spec import ModelSpec
from naiad.execution.ensemble.fast_path import CompiledPlan, PlanNode


def leave_on_devices(compiled: CompiledPlan) -> None:
    """Set ``resident`` of the nodes of a plan that was just compiled.

    A tensor stays where it is if all that read it are steps whose models run there and take it in the same shape, and
    the caller of the ensemble does not get it. Where a model may write to it, no other one reads it.
    """
    outputs = {tensor for _, tensor, _, _ in compiled.outputs}
    for node in compiled.nodes:
        if node.target.device is None:
            continue
        resident = frozenset(
            name for name, tensor in node.outputs if tensor not in outputs and _stays(node, name, tensor)
        )
        if not resident:
            continue
        node.resident = resident | (node.resident or frozenset())
        for follower in node.followers:
            if any(tensor == read for name, tensor in node.outputs if name in resident for _, read in follower.inputs):
                follower.resident = follower.resident or frozenset()


def _stays(node: PlanNode, name: str, tensor: int) -> bool:
    readers = [(other, given) for other in node.followers for given, read in other.inputs if read == tensor]
    if len(readers) > 1 and any(other.target.may_write_inputs for other, _ in readers):
        return False
    return bool(readers) and all(
        other.target.device == node.target.device and _fits(node.target.spec, name, other.target.spec, given)
        for other, given in readers
    )


def _fits(maker: ModelSpec, output: str, reader: ModelSpec, given: str) -> bool:
    """Whether a model takes an output of another one as it is, without a reshape on the way."""
    made, read = maker.outputs[output], reader.inputs[given]
    return (
        made.reshape is None
        and read.reshape is None
        and len(made.dims) == len(read.dims)
        and (maker.max_batch_size > 0) == (reader.max_batch_size > 0)
    )
