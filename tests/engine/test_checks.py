"""Does a request fit its model: every text, and which of several mistakes is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from naiad.config.spec import ModelSpec, TensorSpec
from naiad.engine.request_validation import Fit, check_inputs, check_outputs, check_request, check_size
from naiad.errors import InvalidArgumentError
from naiad.tensor.dtypes import BY_WIRE, DataType

NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
LABEL = "[request id: 7] "
PLEASE = "Please provide all required input(s)."


@dataclass(frozen=True)
class Given:
    name: str
    shape: tuple[int, ...] = (1, 2)
    wire: str = "FP32"

    @property
    def dtype(self) -> DataType:
        return BY_WIRE[self.wire]


def tensor(name: str, dims: Sequence[int] = (2,), batched: bool = True, **more: bool) -> TensorSpec:
    dims = tuple(dims)
    return TensorSpec(name, BY_WIRE["FP32"], dims, (-1, *dims) if batched else dims, **more)


def spec(*inputs: TensorSpec, max_batch_size: int = 8) -> ModelSpec:
    outputs = {n: tensor(n) for n in ("X", "Y", "Z")}
    return ModelSpec("m", "", "identity", max_batch_size, {t.name: t for t in inputs}, outputs, ())


ONE = spec(tensor("A"))
TWO = spec(tensor("A"), tensor("B"))
OPTIONAL = spec(tensor("A"), tensor("B", optional=True), tensor("C", optional=True))
WHOLE = spec(tensor("A", (2, -1), batched=False), max_batch_size=0)


def refused(model: ModelSpec, *given: Given, request_id: str = "7") -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        check_inputs(model, given, request_id)
    return str(caught.value)


# What fits


@pytest.mark.parametrize(
    ("model", "given", "fit"),
    [
        (ONE, [Given("A", (3, 2))], Fit(3, (("A", (2,)),))),
        (ONE, [Given("A", (8, 2))], Fit(8, (("A", (2,)),))),
        (TWO, [Given("B"), Given("A")], Fit(1, (("A", (2,)), ("B", (2,))))),
        (OPTIONAL, [Given("A")], Fit(1, (("A", (2,)),))),
        (OPTIONAL, [Given("C"), Given("A")], Fit(1, (("A", (2,)), ("C", (2,))))),
        (WHOLE, [Given("A", (2, 5))], Fit(1, (("A", (2, 5)),))),
        (WHOLE, [Given("A", (2, 0))], Fit(1, (("A", (2, 0)),))),
        (spec(), [], Fit(1, ())),
        (
            spec(tensor("A"), tensor("S", is_shape_tensor=True)),
            [Given("A", (4, 2)), Given("S", (1, 2))],
            Fit(4, (("A", (2,)), ("S", (2,)))),
        ),
    ],
)
def test_what_fits(model: ModelSpec, given: list[Given], fit: Fit) -> None:
    assert check_inputs(model, given, "") == fit


def test_the_shape_key_tells_which_requests_go_together() -> None:
    model = spec(tensor("A", (-1,)), tensor("B", (-1,)))
    one = check_inputs(model, [Given("A", (1, 3)), Given("B", (1, 4))], "").shape_key
    assert check_inputs(model, [Given("B", (5, 4)), Given("A", (5, 3))], "").shape_key == one
    assert check_inputs(model, [Given("A", (1, 4)), Given("B", (1, 3))], "").shape_key != one


def test_an_output_that_is_asked_for_twice() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        check_request(ONE, [Given("A")], ["X", "X"], "7")
    assert str(refused.value) == "[request id: 7] output 'X' already exists in request"


def test_other_optional_inputs_do_not_go_together() -> None:
    keys = {check_inputs(OPTIONAL, g, "").shape_key for g in ([Given("A")], [Given("A"), Given("B")])}
    assert len(keys) == 2


# What does not


@pytest.mark.parametrize(
    ("model", "given", "text"),
    [
        (TWO, ["A", "B", "A"], LABEL + "input 'A' already exists in request"),
        (TWO, ["B", "A", "A", "B"], LABEL + "input 'A' already exists in request"),
        (
            TWO,
            ["A"],
            f"{LABEL}expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing required "
            f"input(s) ['B']. {PLEASE}",
        ),
        (
            TWO,
            [],
            f"{LABEL}expected 2 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required "
            f"input(s) ['A','B']. {PLEASE}",
        ),
        (
            TWO,
            ["A", "B", "C"],
            f"{LABEL}expected 2 inputs but got 3 inputs for model 'm'. Got input(s) ['C','B','A'], but missing "
            f"required input(s) []. {PLEASE}",
        ),
        (
            OPTIONAL,
            [],
            f"{LABEL}expected number of inputs between 1 and 3 but got 0 inputs for model 'm'. Got input(s) [], but "
            f"missing required input(s) ['A']. {PLEASE}",
        ),
        (TWO, ["A", "nope"], "unexpected inference input 'nope' for model 'm'"),
        (TWO, ["x", "y"], "unexpected inference input 'y' for model 'm'"),
        (
            OPTIONAL,
            ["B", "C"],
            f"{LABEL}missing required input(s) ['A'] for model 'm'. Got input(s) ['C','B']. {PLEASE}",
        ),
    ],
)
def test_names(model: ModelSpec, given: list[str], text: str) -> None:
    assert refused(model, *map(Given, given)) == text


@pytest.mark.parametrize(
    ("model", "given", "text"),
    [
        (ONE, [Given("A", ())], f"{LABEL}input 'A' has no shape but model requires batch dimension for 'm'"),
        (ONE, [Given("A", (9, 2))], f"{LABEL}inference request batch-size must be <= 8 for 'm'"),
        (ONE, [Given("A", (0, 2))], f"{LABEL}inference request batch-size must be at least 1 for 'm', got 0"),
        (
            TWO,
            [Given("A", (2, 2)), Given("B", (1, 2))],
            f"{LABEL}input 'A' batch size does not match other inputs for 'm'",
        ),
        (
            ONE,
            [Given("A", (1, 2), "INT32")],
            f"{LABEL}inference input 'A' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (
            ONE,
            [Given("A", (1, 3))],
            f"{LABEL}unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [1,3]. {NOTE}",
        ),
        (
            ONE,
            [Given("A", (2,))],
            f"{LABEL}unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [2]. {NOTE}",
        ),
        (
            WHOLE,
            [Given("A", (3, 5))],
            f"{LABEL}unexpected shape for input 'A' for model 'm'. Expected [2,-1], got [3,5]. ",
        ),
        (WHOLE, [Given("A", ())], f"{LABEL}unexpected shape for input 'A' for model 'm'. Expected [2,-1], got []. "),
    ],
)
def test_batch_types_and_shapes(model: ModelSpec, given: list[Given], text: str) -> None:
    assert refused(model, *given) == text


def test_without_an_id_the_label_says_so() -> None:
    assert refused(ONE, Given("A", (9, 2)), request_id="").startswith("[request id: <id_unknown>] ")


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ([Given("A"), Given("A"), Given("nope")], "already exists"),
        ([Given("nope"), Given("x"), Given("y")], "expected 2 inputs but got 3"),
        ([Given("nope", (0,)), Given("A", (9, 2))], "unexpected inference input 'nope'"),
        ([Given("A", (9, 2), "INT8"), Given("B", (9, 3))], "batch-size must be <= 8"),
        ([Given("A", (1, 3)), Given("B", (1, 2), "INT8")], "'B' data-type"),
        ([Given("A", (1, 3)), Given("B", (1, 9), "INT8")], "'B' data-type"),
        ([Given("A", (1, 3), "INT8"), Given("B", (1, 9))], "unexpected shape for input 'B'"),
    ],
)
def test_the_order_of_the_checks(given: list[Given], first: str) -> None:
    """Names before batch sizes before types and shapes; the inputs from the last one sent, as the reference does."""
    assert first in refused(TWO, *given)


def test_many_repeated_names_are_found_quickly() -> None:
    given = [Given(str(i)) for i in range(100_000)]
    assert refused(ONE, *given, given[-1]) == LABEL + "input '99999' already exists in request"


# Outputs and sizes


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], ("X", "Y", "Z")),
        (["Z", "X"], ("X", "Z")),
        (["Y", "Y"], ("Y",)),
    ],
)
def test_outputs_come_in_the_models_order(names: list[str], found: tuple[str, ...]) -> None:
    assert check_outputs(ONE, names) == found


def test_an_unknown_output_is_named() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_outputs(ONE, ["X", "nope"])
    assert str(caught.value) == "unexpected inference output 'nope' for model 'm'"


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ([Given("nope")], "unexpected inference output 'Q'"),
        ([], "unexpected inference output 'Q'"),
        ([Given("A", (9, 2))], "unexpected inference output 'Q'"),
        ([Given("A"), Given("A")], "already exists"),
    ],
)
def test_outputs_are_checked_before_inputs(given: list[Given], first: str) -> None:
    with pytest.raises(InvalidArgumentError, match=first):
        check_request(ONE, given, ["Q"], "7")


def test_a_request_that_fits() -> None:
    assert check_request(ONE, [Given("A")], ["Z", "X"], "7") == (Fit(1, (("A", (2,)),)), ("X", "Z"))


def test_sizes() -> None:
    check_size(ONE, "A", 8, 8, "")
    with pytest.raises(InvalidArgumentError) as caught:
        check_size(ONE, "A", 8, 4, "7")
    assert str(caught.value) == f"{LABEL}input byte size mismatch for input 'A' for model 'm'. Expected 8, got 4"
