"""One line about each field of a model configuration, by message and field: the source of ``naiad explain`` and of
docs/configuration.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

QUEUE: Final = "nv_inference_queue_duration_us"
EXECUTIONS: Final = "nv_inference_exec_count"
COMPUTE: Final = "nv_inference_compute_infer_duration_us"
PENDING: Final = "nv_inference_pending_request_count"
FAILURES: Final = "nv_inference_request_failure"
INPUT_TIME: Final = "nv_inference_compute_input_duration_us"
CACHE_HITS: Final = "nv_cache_num_hits_per_model"
LOADING: Final = "nv_model_load_duration_secs"
NO_EFFECT: Final = "Accepted, without effect in this version: "


class FieldHelp(NamedTuple):
    """What a field does.

    Attributes:
        summary: one sentence.
        metric: the metric that shows the field's effect; "" for none.
    """

    summary: str
    metric: str = ""


FIELDS: Final[dict[str, dict[str, FieldHelp]]] = {
    "ModelConfig": {
        "name": FieldHelp("The name in requests; the folder of the model has the same."),
        "platform": FieldHelp("The format of the model, for backends that have several."),
        "backend": FieldHelp("What runs the model."),
        "runtime": FieldHelp("The library of the backend: one of Naiad's, or model.py for a Python-based one."),
        "version_policy": FieldHelp("Which versions are served; one of latest, all and specific."),
        "max_batch_size": FieldHelp(
            "The most rows of one batch; 0 for a model whose tensors have no batch dimension.", EXECUTIONS
        ),
        "input": FieldHelp("The tensors of a request."),
        "output": FieldHelp("The tensors of a response."),
        "batch_input": FieldHelp("Further inputs that describe each batch, for ragged inputs."),
        "batch_output": FieldHelp("How outputs of a ragged batch are divided among its requests."),
        "optimization": FieldHelp("How the framework optimises the model, and which buffers it uses.", COMPUTE),
        "dynamic_batching": FieldHelp("Puts requests together into batches; without it each runs alone.", QUEUE),
        "sequence_batching": FieldHelp("Keeps the requests of a sequence in order and on one instance.", QUEUE),
        "ensemble_scheduling": FieldHelp("The steps of an ensemble: which models it runs, and how tensors flow."),
        "instance_group": FieldHelp("How many instances run the model, and where.", PENDING),
        "default_model_filename": FieldHelp("The name of the model's file or folder in each version."),
        "cc_model_filenames": FieldHelp(NO_EFFECT + "file names by compute capability of a GPU."),
        "metric_tags": FieldHelp("Labels that all metrics of the model get."),
        "parameters": FieldHelp("Settings of the backend, of routes, memory and padding; a Python model reads any."),
        "model_warmup": FieldHelp("Requests that each instance runs before the model is ready.", LOADING),
        "model_operations": FieldHelp("Libraries of custom operators, for ONNX models."),
        "model_transaction_policy": FieldHelp("How many responses a request may have."),
        "model_repository_agents": FieldHelp("Programs that prepare the model's files before a load.", LOADING),
        "response_cache": FieldHelp("Whether equal requests are answered from the server's cache.", CACHE_HITS),
        "model_metrics": FieldHelp("How metrics of this model are made."),
    },
    "ModelVersionPolicy": {
        "latest": FieldHelp("Serves the highest versions."),
        "all": FieldHelp("Serves every version."),
        "specific": FieldHelp("Serves the versions that it lists."),
    },
    "Latest": {"num_versions": FieldHelp("How many of the highest versions are served.")},
    "Specific": {"versions": FieldHelp("The versions that are served.")},
    "ModelInput": {
        "name": FieldHelp("The name in requests, and of the model's own input unless the backend says otherwise."),
        "data_type": FieldHelp("The type of each element."),
        "format": FieldHelp("The order of an image's dimensions; for clients, the server ignores it."),
        "dims": FieldHelp("The shape without the batch dimension; -1 for a dimension of any length."),
        "reshape": FieldHelp("The shape that the model gets in place of dims."),
        "is_shape_tensor": FieldHelp("The input is a shape, not data, for the batch as a whole."),
        "allow_ragged_batch": FieldHelp("Requests of different shapes may share a batch.", EXECUTIONS),
        "optional": FieldHelp("A request may leave the input out."),
        "is_non_linear_format_io": FieldHelp(NO_EFFECT + "a vectorised layout of TensorRT."),
    },
    "ModelOutput": {
        "name": FieldHelp("The name in responses, and of the model's own output unless the backend says otherwise."),
        "data_type": FieldHelp("The type of each element."),
        "dims": FieldHelp("The shape without the batch dimension; -1 for a dimension of any length."),
        "reshape": FieldHelp("The shape that the model returns in place of dims."),
        "label_filename": FieldHelp("A file with a name for each class, for requests that ask for classes."),
        "is_shape_tensor": FieldHelp("The output is a shape, not data, for the batch as a whole."),
        "is_non_linear_format_io": FieldHelp(NO_EFFECT + "a vectorised layout of TensorRT."),
    },
    "ModelTensorReshape": {"shape": FieldHelp("The shape on the model's side, without the batch dimension.")},
    "BatchInput": {
        "kind": FieldHelp("What the input tells about the batch."),
        "target_name": FieldHelp("The model's inputs that get it."),
        "data_type": FieldHelp("The type of each element."),
        "source_input": FieldHelp("The ragged inputs that it is computed from."),
    },
    "BatchOutput": {
        "target_name": FieldHelp("The outputs that are divided."),
        "kind": FieldHelp("How they are divided."),
        "source_input": FieldHelp("The inputs whose shapes say how."),
    },
    "ModelOptimizationPolicy": {
        "graph": FieldHelp("How far the framework optimises the graph.", COMPUTE),
        "priority": FieldHelp("The priority of a TensorRT plan among the models on its GPU."),
        "cuda": FieldHelp("How a TensorRT plan uses its GPU."),
        "execution_accelerators": FieldHelp("Accelerators that run parts of the graph.", COMPUTE),
        "input_pinned_memory": FieldHelp("Whether inputs of a TensorRT plan are copied from pinned memory."),
        "output_pinned_memory": FieldHelp("Whether outputs of a TensorRT plan are copied to pinned memory."),
        "gather_kernel_buffer_threshold": FieldHelp(NO_EFFECT + "gathering of inputs on a GPU."),
        "eager_batching": FieldHelp(NO_EFFECT + "batches prepared before an instance is free."),
    },
    "Graph": {"level": FieldHelp("The level of optimisation; its values are those of the backend.", COMPUTE)},
    "Cuda": {
        "graphs": FieldHelp("Runs of a TensorRT plan are captured as CUDA graphs.", COMPUTE),
        "busy_wait_events": FieldHelp("The thread of a TensorRT plan keeps its core while it waits."),
        "graph_spec": FieldHelp("Which runs are captured; powers of two without it."),
        "output_copy_stream": FieldHelp(NO_EFFECT + "a stream of its own for outputs."),
    },
    "GraphSpec": {
        "batch_size": FieldHelp("The batch size of a captured run."),
        "input": FieldHelp("The shape of each input of a captured run."),
        "graph_lower_bound": FieldHelp("The smallest batch that uses the captured run."),
    },
    "LowerBound": {
        "batch_size": FieldHelp("The fewest rows that use the captured run."),
        "input": FieldHelp("As in the captured run."),
    },
    "Shape": {"dim": FieldHelp("A shape of a captured run, without the batch size.")},
    "ExecutionAccelerators": {
        "gpu_execution_accelerator": FieldHelp("Accelerators of instances on a GPU.", COMPUTE),
        "cpu_execution_accelerator": FieldHelp("Accelerators of instances on the CPU.", COMPUTE),
    },
    "Accelerator": {
        "name": FieldHelp("Which accelerator."),
        "parameters": FieldHelp("The settings of the accelerator."),
    },
    "PinnedMemoryBuffer": {"enable": FieldHelp("Whether pinned memory is used.")},
    "ModelDynamicBatching": {
        "preferred_batch_size": FieldHelp("Batch sizes that do not wait for further requests.", EXECUTIONS),
        "max_queue_delay_microseconds": FieldHelp("How long a batch waits for further requests.", QUEUE),
        "preserve_ordering": FieldHelp("Responses leave in the order in which the requests came."),
        "priority_levels": FieldHelp("The number of priorities, 1 being the highest; 0 for none.", QUEUE),
        "default_priority_level": FieldHelp("The priority of requests that state none."),
        "default_queue_policy": FieldHelp("Limits of the queue, for priorities without their own."),
        "priority_queue_policy": FieldHelp("Limits of the queue of one priority."),
    },
    "ModelQueuePolicy": {
        "timeout_action": FieldHelp("What becomes of a request that waited too long: refused, or put last.", FAILURES),
        "default_timeout_microseconds": FieldHelp("How long a request may wait; 0 for any time.", QUEUE),
        "allow_timeout_override": FieldHelp("A request may state a shorter time of its own."),
        "max_queue_size": FieldHelp("How many requests may wait; more are refused. 0 for any number.", PENDING),
    },
    "ModelSequenceBatching": {
        "direct": FieldHelp("Each sequence has a fixed place in the batch of one instance."),
        "oldest": FieldHelp("Requests of several sequences are put together, the oldest first."),
        "max_sequence_idle_microseconds": FieldHelp("A sequence without a request for this long ends."),
        "control_input": FieldHelp("Inputs that tell the model where a sequence starts, ends or continues."),
        "state": FieldHelp("Tensors that the server carries from one request of a sequence to the next."),
        "iterative_sequence": FieldHelp("A request is run again until the model says that it is done."),
    },
    "StrategyDirect": {
        "max_queue_delay_microseconds": FieldHelp("How long a batch waits for requests of other sequences.", QUEUE),
        "minimum_slot_utilization": FieldHelp("The share of places that ends the wait, 0 to 1.", EXECUTIONS),
    },
    "StrategyOldest": {
        "max_candidate_sequences": FieldHelp("How many sequences an instance may have at once.", PENDING),
        "preferred_batch_size": FieldHelp("Batch sizes that do not wait for further requests.", EXECUTIONS),
        "max_queue_delay_microseconds": FieldHelp("How long a batch waits for further requests.", QUEUE),
        "preserve_ordering": FieldHelp("Responses leave in the order in which the requests came."),
    },
    "ControlInput": {
        "name": FieldHelp("The model's input that gets the signal."),
        "control": FieldHelp("What the input tells."),
    },
    "Control": {
        "kind": FieldHelp("Start, end, ready or the id of the sequence."),
        "int32_false_true": FieldHelp("The INT32 values for no and yes."),
        "fp32_false_true": FieldHelp("The FP32 values for no and yes."),
        "bool_false_true": FieldHelp("The BOOL values for no and yes."),
        "data_type": FieldHelp("The type of the id of the sequence."),
    },
    "State": {
        "input_name": FieldHelp("The model's input that gets the state."),
        "output_name": FieldHelp("The model's output that is the next state."),
        "data_type": FieldHelp("The type of each element."),
        "dims": FieldHelp("The shape of the state."),
        "initial_state": FieldHelp("The state of a sequence that starts."),
        "use_same_buffer_for_input_output": FieldHelp("The state is written where it is read."),
        "use_growable_memory": FieldHelp("The buffer of the state grows in place."),
    },
    "InitialState": {
        "data_type": FieldHelp("The type of each element."),
        "dims": FieldHelp("The shape of the state."),
        "zero_data": FieldHelp("The state is zeros."),
        "data_file": FieldHelp("A file of the model's folder initial_state."),
        "name": FieldHelp("A name, for error texts."),
    },
    "ModelEnsembling": {
        "step": FieldHelp("The models that the ensemble runs."),
        "max_inflight_requests": FieldHelp("How many requests a step may have in flight; 0 for any number.", PENDING),
    },
    "Step": {
        "model_name": FieldHelp("The model of the step."),
        "model_version": FieldHelp("Its version; -1 for the latest."),
        "input_map": FieldHelp("Each input of the model, and the tensor of the ensemble that it gets."),
        "output_map": FieldHelp("Each output of the model, and the tensor of the ensemble that it makes."),
        "model_namespace": FieldHelp("The repository of the model, where namespaces are on."),
    },
    "ModelInstanceGroup": {
        "name": FieldHelp("A name, for logs and error texts."),
        "kind": FieldHelp("The device: KIND_CPU, KIND_GPU, KIND_AUTO, or KIND_MODEL where the model chooses."),
        "count": FieldHelp("Instances in the group, on each GPU for KIND_GPU.", PENDING),
        "rate_limiter": FieldHelp("Resources that an instance needs for a batch, with --rate-limit.", QUEUE),
        "gpus": FieldHelp("The GPUs of the group."),
        "secondary_devices": FieldHelp("A deep learning accelerator beside the GPU, for TensorRT plans."),
        "profile": FieldHelp("Optimisation profiles of TensorRT."),
        "passive": FieldHelp("The instances load and run no requests."),
        "host_policy": FieldHelp(
            "Names the --host-policy of the instances: their cores and memory. Default cpu, gpu_<id>, model."
        ),
    },
    "ModelRateLimiter": {
        "resources": FieldHelp("The resources that a batch needs.", QUEUE),
        "priority": FieldHelp("The weight of the model among those that wait; a larger number runs less often."),
    },
    "Resource": {
        "name": FieldHelp("The name of the resource."),
        "global": FieldHelp("All devices share the resource."),
        "count": FieldHelp("How many of it a batch needs."),
    },
    "SecondaryDevice": {
        "kind": FieldHelp("Its kind: KIND_NVDLA."),
        "device_id": FieldHelp("Its number."),
    },
    "ModelParameter": {"string_value": FieldHelp("The value.")},
    "ModelWarmup": {
        "name": FieldHelp("A name, for logs and error texts."),
        "batch_size": FieldHelp("The rows of the sample; 0 for a model without a batch dimension."),
        "inputs": FieldHelp("The tensors of the sample."),
        "count": FieldHelp("How often the sample runs; 0 is once.", LOADING),
    },
    "Input": {
        "data_type": FieldHelp("The type of each element."),
        "dims": FieldHelp("The shape without the batch dimension."),
        "zero_data": FieldHelp("The tensor is zeros."),
        "random_data": FieldHelp("The tensor is random numbers."),
        "input_data_file": FieldHelp("A file of the model's folder warmup."),
    },
    "ModelOperations": {"op_library_filename": FieldHelp("The paths of the libraries.")},
    "ModelTransactionPolicy": {
        "decoupled": FieldHelp("A request may have any number of responses, in any order."),
    },
    "ModelRepositoryAgents": {"agents": FieldHelp("The agents, in their order.")},
    "Agent": {
        "name": FieldHelp("Which agent."),
        "parameters": FieldHelp("The settings of the agent."),
    },
    "ModelResponseCache": {"enable": FieldHelp("Whether the cache is used.", CACHE_HITS)},
    "ModelMetrics": {"metric_control": FieldHelp("Settings of one family of metrics each.")},
    "MetricControl": {
        "metric_identifier": FieldHelp("Which family."),
        "histogram_options": FieldHelp("The buckets of its histogram."),
    },
    "MetricIdentifier": {"family": FieldHelp("The name of the family.")},
    "HistogramOptions": {"buckets": FieldHelp("The upper bounds of the buckets.")},
}
"""Messages are named without those around them; ``field_help`` finds the line of a field."""
