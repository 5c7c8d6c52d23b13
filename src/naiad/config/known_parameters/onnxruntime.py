"""Parameters of ONNX Runtime models. Source: the README of the reference's onnxruntime backend."""

from __future__ import annotations

from naiad.config.known_parameters.parameter import GPU, KnownParameter

PARAMETERS = (
    KnownParameter("intra_op_thread_count", "threads of one operator; 0 divides the cores among the instances"),
    KnownParameter("inter_op_thread_count", "threads for operators beside each other, with execution_mode 1"),
    KnownParameter("execution_mode", "0: operators one after the other; 1: beside each other"),
    KnownParameter("enable_mem_arena", "whether memory is kept for the next run"),
    KnownParameter("enable_mem_pattern", "whether memory is planned from earlier runs of the same shape"),
    KnownParameter("memory.enable_memory_arena_shrinkage", "devices whose kept memory is released after each run"),
    KnownParameter("session.*", "an entry of the session's configuration, handed to onnxruntime as it stands"),
    KnownParameter("cudnn_conv_algo_search", "how CUDA chooses the algorithm of a convolution", GPU),
    KnownParameter("cudnn_conv_use_max_workspace", "whether convolutions may use all the workspace they ask for", GPU),
    KnownParameter("gpu_mem_limit", "the most memory of the CUDA arena, in bytes", GPU),
    KnownParameter("arena_extend_strategy", "how the CUDA arena grows", GPU),
    KnownParameter("do_copy_in_default_stream", "whether copies share the stream of the kernels", GPU),
    KnownParameter("tunable_op_enable", "whether tuned kernels are used", GPU),
    KnownParameter("tunable_op_tuning_enable", "whether kernels are tuned during runs", GPU),
)
