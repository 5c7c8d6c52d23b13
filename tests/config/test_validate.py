"""Every rule of the configuration reference, by its text."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format

from naiad.config.messages import ModelConfig
from naiad.config.normalize import normalize
from naiad.config.problems import Origin
from naiad.config.read import ConfigFormat, parse_config
from naiad.config.unsupported import UNSUPPORTED, unsupported
from naiad.config.validate import validate
from naiad.errors import ConfigError
from naiad.gpus.usable import UsableGpus

IO = 'input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] } output { name: "B" data_type: TYPE_FP32 dims: [ 4 ] } '
BASE = 'name: "m" backend: "identity" max_batch_size: 8 '
SEQUENCE = BASE + "sequence_batching { %s }"
ENSEMBLE = 'name: "m" platform: "ensemble" ' + IO


def config_of(text: str, gpu_count: int = 0) -> Any:
    config = text_format.Parse(text, ModelConfig())
    normalize(config, UsableGpus(tuple(range(gpu_count))))
    return config


def _validated(text: str, gpu_count: int) -> list[ConfigError]:
    return validate(config_of(text, gpu_count), gpus=UsableGpus(tuple(range(gpu_count))))


def found(text: str, gpu_count: int = 0) -> list[str]:
    return [str(problem) for problem in _validated(text, gpu_count)]


@pytest.mark.parametrize(
    "text",
    [
        BASE,
        BASE + IO,
        'name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime"',
        'name: "m" backend: "my_own"',
        BASE + 'input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }',
        BASE + 'input { name: "A" data_type: TYPE_FP32 dims: [ 4, -1, 2 ] reshape { shape: [ 2, 2, -1, 2 ] } }',
        BASE + 'input { name: "A" data_type: TYPE_FP32 dims: [ 3, 2, 2 ] format: FORMAT_NCHW }',
        BASE + "dynamic_batching { preferred_batch_size: [ 8, 1 ] }",
        BASE + "dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
        ENSEMBLE
        + 'ensemble_scheduling { step { model_name: "x" model_version: -1 '
        + 'input_map { key: "I" value: "A" } output_map { key: "O" value: "B" } } }',
    ],
)
def test_good_configurations(text: str) -> None:
    assert found(text) == []


CASES = {
    # General
    'backend: "identity"': ["model configuration must specify 'name'"],
    'name: "m"': ["must specify 'platform' or 'backend' for 'm'"],
    'name: "m" platform: "onnx"': ["unexpected platform type 'onnx' for m, did you mean 'onnxruntime_onnx'?"],
    'name: "m" platform: "pytorch_libtorch" backend: "onnxruntime"': [
        "unexpected 'platform' and 'backend' pair, got:pytorch_libtorch, onnxruntime, expected platform "
        "onnxruntime_onnx"
    ],
    'name: "m" backend: "onnxruntime"': [
        "unexpected 'platform' and 'backend' pair, got:, onnxruntime, expected platform onnxruntime_onnx"
    ],
    'name: "m" backend: "identity" max_batch_size: -1': ["'max_batch_size' must be non-negative value for m"],
    BASE + "version_policy { specific { versions: [ 0 ] } }": [
        "found the version 0 in the version policy of m, expected 1 or more"
    ],
    # Inputs and outputs
    BASE + "input { dims: 1 data_type: TYPE_FP32 }": ["model input must specify 'name' for m"],
    BASE + 'input { name: "A" dims: 1 }': ["model input 'A' must specify 'data_type' for m"],
    BASE + 'output { name: "A" data_type: TYPE_FP32 }': ["model output 'A' must specify 'dims' for m"],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: [ 1, 0, -2 ] }': [
        "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m, found 0",
        "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m, found -2",
    ],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: 4 reshape { shape: 0 } }': [
        "model input 'A' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for m, "
        "found dims [4] and reshape [0]"
    ],
    'name: "m" backend: "b" output { name: "A" data_type: TYPE_FP32 dims: 1 reshape { } }': [
        "model output 'A' cannot have empty reshape for non-batching model as scalar tensors are not supported for m, "
        "found dims [1] and reshape []"
    ],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: 2 reshape { } }': [
        "model input 'A' has different size for dims and reshape for m, found dims [2] and reshape []"
    ],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ -1, 4 ] } }': [
        "model input 'A' has different size for dims and reshape for m, found dims [4, -1] and reshape [-1, 4]"
    ],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: [ -1 ] } }': [
        "model input 'A' has different number of variable-size dimensions for dims and reshape "
        "for m, found dims [-1, -1] and reshape [-1]"
    ],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: [ -1 ] reshape { shape: [ 4 ] } }': [
        "model input 'A' has different size for dims and reshape for m, found dims [-1] and reshape [4]"
    ],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: [ 2, 2 ] format: FORMAT_NHWC }': [
        "model input NHWC/NCHW require 3 dims for m"
    ],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: 1 is_shape_tensor: true is_non_linear_format_io: true }': [
        "shape tensors are only supported for TensorRT platform for m",
        "Non-linear IO format is only supported for the TensorRT platform for m",
    ],
    BASE + 'input { name: "A" data_type: TYPE_FP32 dims: 1 } ' * 2: [
        "model input 'A' is specified more than once for m"
    ],
    # Batch inputs and outputs
    BASE + IO + "batch_input { data_type: TYPE_FP64 }": [
        "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 0",
        "batch input data type must be TYPE_INT32 or TYPE_FP32",
    ],
    BASE + IO + 'batch_input { data_type: TYPE_FP32 source_input: "X" }': ["unknown source input name 'X'"],
    BASE + IO + 'batch_output { source_input: "A" target_name: [ "B", "B", "C" ] }': [
        "target output name 'B' can only be specified once",
        "unknown target output name 'C'",
    ],
    # Dynamic batching
    BASE + "dynamic_batching { preferred_batch_size: [ 0, 9 ] }": [
        "dynamic batching preferred size must be positive for m, found 0",
        "dynamic batching preferred size must be <= max batch size for m, found 9 with max_batch_size 8",
    ],
    BASE + "dynamic_batching { priority_levels: 2 priority_queue_policy { key: 3 value { } } }": [
        "default priority level must be in range [1, 2] for m",
        "priority queue policy must have priority level in range [1, 2] for m",
    ],
    BASE
    + "dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 "
    + "default_queue_policy { timeout_action: DELAY } }": [
        "Only one priority level is allowed when 'preserve_ordering' is true for m",
        "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
    ],
    # Cache
    BASE + "response_cache { enable: true } model_transaction_policy { decoupled: true } sequence_batching { }": [
        "Response Cache does not currently support model m with sequence batching scheduler. Please disable the "
        "response cache.",
        "Response Cache does not currently support model m with 'decoupled' transaction policy. Please disable the "
        "response cache.",
    ],
    # Sequence batching
    SEQUENCE % "control_input { control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }": [
        "sequence batching control tensor must have a name for m"
    ],
    SEQUENCE % 'control_input { name: "S" control { } }': [
        "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
        "CONTROL_SEQUENCE_START for m"
    ],
    SEQUENCE % ('control_input { name: "S" control { int32_false_true: [ 0, 1 ] } } ' * 2): [
        "sequence batching control tensor 'S' is specified for multiple control kinds for m",
        "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m",
    ],
    SEQUENCE % 'control_input { name: "S" control { fp32_false_true: 1 bool_false_true: [ false, true ] } }': [
        "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' or 'bool_false_true' "
        "for CONTROL_SEQUENCE_START for m",
        "sequence batching control 'fp32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for m",
    ],
    SEQUENCE % 'control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } }': [
        "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, "
        "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
    ],
    SEQUENCE % "oldest { preferred_batch_size: [ 0, 9 ] }": [
        "sequence batching preferred batch size must be positive for m",
        "sequence batching preferred batch size must be <= max batch size for m",
    ],
    SEQUENCE % "direct { minimum_slot_utilization: 1.5 }": [
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"
    ],
    SEQUENCE
    % (
        'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [ -1, 2 ] '
        "initial_state { data_type: TYPE_INT8 dims: 3 } }"
    ): [
        "The data type used for 'initial_state' field of state 's' does not match the state data type.",
        "Field 'name' must be set when using initial_state for state input 's'.",
        "initial_state setting expects state 's' to have state_data set: zero_data or data_file",
        "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 's'. "
        "1 != 2",
    ],
    SEQUENCE
    % (
        'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [ -1, 2 ] '
        'initial_state { name: "i" data_type: TYPE_FP32 dims: [ 7, 3 ] zero_data: true } } '
        'state { input_name: "u" output_name: "v" data_type: TYPE_FP32 dims: [ -1 ] '
        'initial_state { name: "i" data_type: TYPE_FP32 dims: [ -1 ] zero_data: true } }'
    ): [
        "'initial_state' dim for input name 's' doesn't match 'state' dim description. 3 != 2",
        "'initial_state' field for state input name 'u' contains variable dimensions: [-1]",
    ],
    SEQUENCE % "state { }": [
        "sequence batching state must specify 'input_name' for m",
        "sequence batching state must specify 'output_name' for m",
        "sequence batching state '' must specify 'data_type' for m",
    ],
    SEQUENCE
    % (
        'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 use_growable_memory: true } '
        'state { input_name: "s" output_name: "u" data_type: TYPE_FP32 }'
    ): [
        "In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input name 's'.",
        "State input name 's' specified more than once.",
    ],
    # Ensembles
    'name: "m" platform: "ensemble" backend: "x"': [
        "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        "ensemble scheduling must be set for ensemble m whose platform is ensemble",
    ],
    BASE + IO + "ensemble_scheduling { } instance_group { } optimization { } model_warmup { }": [
        "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
        "instance group should not be specified for ensemble 'm'",
        "optimization should not be specified for ensemble 'm'",
        "model_warmup can not be specified for ensemble 'm'",
        "must specify 'step' for ensemble 'm'",
        "ensemble input 'A' for ensemble m' is not used",
        "ensemble output 'B' for ensemble m' is not used",
    ],
    ENSEMBLE
    + 'ensemble_scheduling { step { input_map { key: "I" value: "A" } output_map { key: "O" value: "t" } } '
    + 'step { model_name: "x" input_map { key: "I" value: "u" } output_map { key: "O" value: "t" } '
    + 'output_map { key: "P" value: "B" } } }': [
        "must specify 'model_name' in step 0 of ensemble 'm'",
        "ensemble tensor 't' can appear in an output map only once for ensemble 'm' step 1",
        "output 'B' for ensemble 'm' is not written: at least one of its depending tensors, 'u', is not connected",
        "ensemble tensor 't' is unused in ensemble 'm'",
    ],
    # A circle
    ENSEMBLE
    + 'ensemble_scheduling { step { model_name: "x" '
    + 'input_map { key: "I" value: "A" } input_map { key: "J" value: "t" } '
    + 'output_map { key: "O" value: "u" } output_map { key: "P" value: "B" } } '
    + 'step { model_name: "y" input_map { key: "I" value: "u" } output_map { key: "O" value: "t" } } }': [
        "output 'B' for ensemble 'm' is not written: at least one of its depending tensors, 'u', is not connected",
    ],
    # Two writers, the second one of an input, too
    ENSEMBLE
    + 'ensemble_scheduling { step { model_name: "x" '
    + 'input_map { key: "I" value: "A" } output_map { key: "O" value: "B" } } '
    + 'step { model_name: "y" input_map { key: "I" value: "A" } output_map { key: "O" value: "B" } '
    + 'output_map { key: "P" value: "A" } } }': [
        "ensemble tensor 'A' can appear in an output map only once for ensemble 'm' step 1",
        "ensemble tensor 'B' can appear in an output map only once for ensemble 'm' step 1",
    ],
    # Two writers with the same condition
    ENSEMBLE
    + 'ensemble_scheduling { step { model_name: "x" '
    + 'input_map { key: "when" value: "A" } output_map { key: "O" value: "B" } } '
    + 'step { model_name: "y" input_map { key: "when" value: "A" } output_map { key: "O" value: "B" } } }': [
        "ensemble tensor 'B' can appear in an output map only once for ensemble 'm' step 1; two steps may write it if "
        "one runs 'when' and the other 'unless' the same tensor is true",
    ],
    # Metrics
    BASE + "model_metrics { metric_control { } metric_control { metric_identifier { } histogram_options { } } }": [
        "metric control must specify 'metric_identifier' for m",
        "metric control must specify 'histogram_options' for m",
        "metric identifier must specify non-empty 'family' for m",
        "histogram options must specify non-empty 'buckets' for m",
    ],
    # Instance groups
    BASE + "instance_group { kind: KIND_CPU gpus: 0 }": [
        "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs: remove 'gpus' (KIND_AUTO is "
        "KIND_CPU without a GPU; --gpu-fallback=cpu ignores the 'gpus' of such a group)"
    ],
    BASE + "instance_group { kind: KIND_MODEL gpus: 0 }": [
        "instance group m_0 of model m has kind KIND_MODEL but specifies one or more GPUs"
    ],
    BASE + "instance_group { kind: KIND_CPU count: 5000 }": [
        "instance group m_0 of model m has count 5000, and a group has at most 4096 instances"
    ],
    BASE + 200 * "instance_group { kind: KIND_CPU count: 4096 }": [
        "the 200 instance groups of model m have 819200 instances together, and a model has at most 4096"
    ],
    BASE + "instance_group { kind: KIND_CPU count: 4000 } instance_group { kind: KIND_CPU count: 97 passive: true }": [
        "the 2 instance groups of model m have 4097 instances together, and a model has at most 4096"
    ],
    BASE + 2 * "instance_group { kind: KIND_CPU count: 2048 }": [],
    BASE + "instance_group { kind: KIND_CPU passive: true }": [
        "every instance group of m is passive, so that none would run its requests: set passive: false in one of them"
    ],
    BASE + "instance_group { kind: KIND_GPU }": [
        "instance group m_0 of model m has kind KIND_GPU but no GPUs are available: write KIND_CPU, or KIND_AUTO for a "
        "GPU where there is one, or start the server with --gpu-fallback=cpu"
    ],
    BASE + 'instance_group { profile: "1" }': [
        "instance group m_0 of model m specifies 'profile', which only the TensorRT platform knows"
    ],
}


@pytest.mark.parametrize("text", CASES)
def test_violations(text: str) -> None:
    assert found(text) == CASES[text]


def test_one_of_two_steps_may_write_the_same() -> None:
    text = (
        ENSEMBLE
        + 'ensemble_scheduling { step { model_name: "x" input_map { key: "when" value: "A" } '
        + 'output_map { key: "O" value: "B" } } step { model_name: "y" input_map { key: "unless" value: "A" } '
        + 'output_map { key: "O" value: "B" } } }'
    )
    assert found(text) == []


def test_the_steps_of_an_ensemble_are_bounded() -> None:
    step = 'step { model_name: "x" input_map { key: "I" value: "A" } output_map { key: "O" value: "B" } } '
    text = ENSEMBLE + "ensemble_scheduling { " + step * 1025 + "}"
    assert "ensemble 'm' has 1025 steps, more than 1024: divide it into several" in found(text)


def test_gpu_numbers() -> None:
    assert found(BASE + "instance_group { kind: KIND_GPU gpus: [ 0, 2 ] }", gpu_count=2) == [
        "instance group m_0 of model m specifies invalid or unsupported gpu id 2. GPUs with at least the minimum "
        "required CUDA compute compatibility of 7.5 are: 0, 1"
    ]


def test_rules_that_normalisation_keeps_from_breaking() -> None:
    config = text_format.Parse(BASE, ModelConfig())
    assert [str(problem) for problem in validate(config)] == [
        "must specify 'version policy' for m",
        "must specify one or more 'instance group's for m",
    ]


def test_directory_name() -> None:
    problems = validate(config_of(BASE), directory="other")
    expected = "unexpected directory name 'other' for model 'm', directory name must equal model name"
    assert [str(problem) for problem in problems] == [expected]


def test_problems_stand_at_their_lines() -> None:
    text = 'name: "m"\nbackend: "identity"\ninput {\n  name: "A"\n  dims: [ 1,\n    0 ]\n}\nmax_batch_size: -3\n'
    read = parse_config(text, ConfigFormat.PBTXT)
    normalize(read.config)
    lines = [(p.line, str(p).split(" for m")[0]) for p in validate(read.config, origin=read.origin)]
    assert [line for line, _ in lines] == [8, 3, 6], lines


REFUSED = {
    'backend: "pytorch" model_transaction_policy { decoupled: true }': ["model_transaction_policy.decoupled"],
    'backend: "pytorch" model_operations { op_library_filename: "x.so" }': ["model_operations.op_library_filename"],
    'runtime: "libtriton_other.so"': ["runtime"],
    'backend: "onnxruntime" runtime: "model.py"': ["runtime"],
    "instance_group { secondary_devices { } }": ["instance_group[0].secondary_devices"],
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_supported_is_refused_by_name(text: str) -> None:
    config = text_format.Parse('name: "m" ' + text, ModelConfig())
    problems = [str(problem) for problem in unsupported(config)]
    assert [problem.split(" of model 'm' asks for ")[0] for problem in problems] == [f"'{p}'" for p in REFUSED[text]]
    assert all("this version does not support: " in problem for problem in problems)


def test_every_row_of_the_table_is_tested() -> None:
    texts = " ".join(str(p) for text in REFUSED for p in unsupported(text_format.Parse(text, ModelConfig())))
    assert [row.feature for row in UNSUPPORTED if row.feature not in texts] == []


@pytest.mark.parametrize(
    "text",
    [
        "model_transaction_policy { }",
        'backend: "python" model_transaction_policy { decoupled: true }',
        'backend: "of_ours" runtime: "model.py" model_transaction_policy { decoupled: true }',
        'backend: "pytorch" runtime: "model.py"',
        "response_cache { enable: false }",
        "dynamic_batching { default_queue_policy { } }",
        'backend: "onnxruntime" runtime: "libtriton_onnxruntime.so"',
        'optimization { priority: PRIORITY_MAX cuda { graphs: true } } metric_tags { key: "a" value: "b" }',
        "instance_group { rate_limiter { priority: 2 } }",
    ],
)
def test_what_changes_no_answer_is_let_pass(text: str) -> None:
    config = text_format.Parse(text, ModelConfig())
    before = config.SerializeToString(deterministic=True)
    assert unsupported(config, Origin()) == []
    assert config.SerializeToString(deterministic=True) == before
