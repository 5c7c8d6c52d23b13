"""Parameters of OpenVINO models. Source: the README of the reference's openvino backend."""

from __future__ import annotations

from naiad.config.known_parameters.parameter import KnownParameter

PARAMETERS = (
    KnownParameter("PERFORMANCE_HINT", "LATENCY or THROUGHPUT: what OpenVINO tunes the compiled model for"),
    KnownParameter("NUM_STREAMS", "runs that the compiled model executes at a time: a number, AUTO or NUMA"),
    KnownParameter("INFERENCE_NUM_THREADS", "threads of all instances together; 0 takes the cores of the server"),
    KnownParameter("COMPILATION_NUM_THREADS", "threads that compile the model, on devices other than the CPU"),
    KnownParameter("HINT_BF16", "YES: compute in BF16, NO: in FP32"),
    KnownParameter("SKIP_OV_DYNAMIC_BATCHSIZE", "YES: compile for batches of exactly max_batch_size rows"),
    KnownParameter("ENABLE_BATCH_PADDING", "YES: fill up batches that have fewer rows than the model needs"),
    KnownParameter("RESHAPE_IO_LAYERS", "YES: give the inputs the dims of the configuration"),
    KnownParameter("TARGET_DEVICE", "CPU, GPU, NPU, AUTO, or a list of devices with MULTI or HETERO"),
    KnownParameter("CPU_EXTENSION_PATH", "a library with further operators"),
    KnownParameter("CACHE_DIR", "a folder for compiled models"),
)
