"""Parameters of PyTorch models. Source: the README of the reference's pytorch backend."""

from __future__ import annotations

from naiad.config.known_parameters.parameter import GPU, KnownParameter

PARAMETERS = (
    KnownParameter(
        "COMPILE",
        "whether model.pt2 is compiled with AOTInductor, on a processor by default, or model.py with torch.compile",
    ),
    KnownParameter("TORCH_COMPILE_OPTIONAL_PARAMETERS", "arguments of torch.compile for model.py, as JSON"),
    KnownParameter("MODEL_CLASS", "the class in model.py that is served, where it has several"),
    KnownParameter("INTRA_OP_THREAD_COUNT", "threads of one operator; 0 divides the cores among the instances"),
    KnownParameter("INTER_OP_THREAD_COUNT", "threads for operators beside each other, once for the process"),
    KnownParameter("NUM_THREADS", "INTRA_OP_THREAD_COUNT under the name of the reference's runtime in Python"),
    KnownParameter("NUM_INTEROP_THREADS", "INTER_OP_THREAD_COUNT under the name of the reference's runtime in Python"),
    KnownParameter("INFERENCE_MODE", "whether runs leave out what only training needs"),
    KnownParameter("DISABLE_OPTIMIZED_EXECUTION", "whether TorchScript runs without its optimiser"),
    KnownParameter("ENABLE_WEIGHT_SHARING", "whether the instances on one device share one module"),
    KnownParameter("DISABLE_CUDNN", "whether cuDNN is left out", GPU),
    KnownParameter("ENABLE_CACHE_CLEANING", "whether CUDA's cached memory is released after each run", GPU),
    KnownParameter("ENABLE_JIT_EXECUTOR", "accepted: the executor of older releases"),
    KnownParameter("ENABLE_JIT_PROFILING", "accepted: the profiler of older releases"),
    KnownParameter("ENABLE_TENSOR_FUSER", "accepted: the fuser of older releases"),
)
