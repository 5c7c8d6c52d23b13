"""What the exceptions of frameworks become: a reason, an operator and what to change."""

from __future__ import annotations

import warnings

import pytest

from naiad.convert.errors import StepFailure
from naiad.convert.failure import describe_failure

PAGES = """Failed to convert the exported program to an ONNX model. This is step 3/3 of exporting the model. Next steps:
- If there is a missing ONNX function, implement it and register it to the registry.
- If there is an internal error during ONNX conversion, debug the error and submit a PR to PyTorch.

## Exception summary

<class 'torch.onnx._internal.exporter._errors.DispatchError'>: No ONNX function found for \
<OpOverload(op='prims.bessel_j0', overload='default')>. Failure message: No \
decompositions registered for the real-valued input
"""


def test_the_advice_of_an_exporter_is_not_the_reason() -> None:
    failure = StepFailure(**describe_failure(RuntimeError(PAGES)))
    assert failure.reason.startswith("RuntimeError: No ONNX function found for <OpOverload(op='prims.bessel_j0'")
    assert failure.operator == "prims.bessel_j0"
    assert "replace the operator" in failure.advice


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ("Please feel free to request support", "replace the operator in the model's code"),
        ("Support for this operator was added in version 20, try exporting with this version", "as --opset"),
    ],
)
def test_another_opset_is_advised_where_one_helps(more: str, advice: str) -> None:
    text = f"Exporting the operator 'aten::grid_sampler' to ONNX opset version 15 is not supported. {more}."
    failure = StepFailure(**describe_failure(RuntimeError(text)))
    assert failure.operator == "aten::grid_sampler"
    assert advice in failure.advice


def test_code_that_is_no_torchscript_is_shown() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            return super().forward(x)

    with warnings.catch_warnings(), pytest.raises(RuntimeError) as caught:
        warnings.simplefilter("ignore")
        torch.jit.script(Net())
    failure = StepFailure(**describe_failure(caught.value))
    assert not failure.reason.endswith(":")
    assert __file__ in failure.advice
    assert "return super().forward(x)" in failure.advice
