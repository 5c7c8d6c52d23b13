"""The settings of a TensorFlow model: parameters, optimisations and ``--backend-config``."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from naiad.backend_api.backend import threads_per_instance
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.tensorflow.tensorrt_optimizer import NAME as TENSORRT
from naiad.backends.tensorflow.tensorrt_optimizer import TensorRtOptimizer
from naiad.config.parsing.suggest import did_you_mean
from naiad.errors import ModelLoadError
from naiad.processes.affinity import ANYWHERE, Affinity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from naiad.backend_api.backend import BackendContext

log = logging.getLogger("naiad")

SERVE: Final = "serve"
MIXED_PRECISION: Final = "auto_mixed_precision"
GPU_IO: Final = "gpu_io"
ACCELERATORS: Final = (MIXED_PRECISION, GPU_IO, TENSORRT)

# optimization.graph.level of the configuration -> member of OptimizerOptions.GlobalJitLevel.
_JIT_LEVELS: Final = {None: "DEFAULT", -1: "OFF", 0: "DEFAULT", 1: "ON_1", 2: "ON_2"}
_XLA_VARIABLE: Final = "TF_XLA_FLAGS"
_AUTO_JIT: Final = "tf_xla_auto_jit"
_INTRA_VARIABLE: Final = "TF_NUM_INTRAOP_THREADS"
_INTER_VARIABLE: Final = "TF_NUM_INTEROP_THREADS"
# What a processor calls arithmetic in bfloat16: x86, then ARM.
_BFLOAT16_FLAGS: Final = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_CPU_INFO: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """Everything that decides how a session is made. Equal settings make interchangeable sessions.

    Attributes:
        intra_threads: threads that one operator may use; 0 leaves the number to TensorFlow.
        inter_threads: operators that run at the same time; 0 leaves the number to TensorFlow.
        own_threads: the session's operators run in threads of its own.
        in_caller: they run in the thread that asks, one after the other.
        jit_level: a member of ``OptimizerOptions.GlobalJitLevel``.
        mixed_precision: oneDNN computes in bfloat16 where that is safe; on a GPU, TensorFlow computes in float16.
        tensorrt: how parts of the graph are given to TensorRT, on a GPU; None for not at all.
        max_batch_size: of the model, for TensorRT.
        gpu_fraction: the part of a GPU's memory that is reserved; 0 takes what is needed.
        share_count: how many instances share a session; 0 for all.
        signature: of a SavedModel; "" for the default one.
        init_ops_file: its name; "" for none.
    """

    intra_threads: int = 0
    inter_threads: int = 0
    own_threads: bool = False
    in_caller: bool = True
    jit_level: str = "DEFAULT"
    mixed_precision: bool = False
    tensorrt: TensorRtOptimizer | None = None
    soft_placement: bool = True
    gpu_fraction: float = 0.0
    share_count: int = 0
    max_batch_size: int = 0
    tags: tuple[str, ...] = (SERVE,)
    signature: str = ""
    init_ops_file: str = ""

    @property
    def compiles(self) -> bool:
        """Whether XLA may compile parts of the graph, for each shape of the inputs anew."""
        asked = self.jit_level == "DEFAULT" and _AUTO_JIT in os.environ.get(_XLA_VARIABLE, "")
        return asked or self.jit_level.startswith("ON")


def read_settings(
    context: BackendContext,
    parameters: Mapping[str, str],
    graph_level: int | None,
    accelerators: tuple[str, ...],
    instance_count: int,
    affinity: Affinity = ANYWHERE,
) -> GraphSettings:
    """The settings of one model, or of its ``instance_count`` instances that run where ``affinity`` says.

    Source: parameters of the reference's tensorflow backend. Threads are the cores divided among the sessions where
    neither ``TF_NUM_INTRA_THREADS`` nor the environment gives a number.

    Raises:
        ModelLoadError: a value does not fit; the text names it.
    """
    _check_accelerators(context.model, accelerators)
    if graph_level not in _JIT_LEVELS:
        raise ModelLoadError(
            f"model '{context.model}': optimization {{ graph {{ level: {graph_level} }} }}: expected -1 (XLA off), "
            f"0 (TensorFlow's default), 1 or 2 (XLA on)"
        )
    reader = ParameterReader(context.model, parameters)
    backend = ParameterReader(context.model, context.backend_config, "backend config setting")
    if backend.integer("version", 2) != 2:
        raise backend.refused("version", '"2", the version of the TensorFlow library that there is')
    share_count = reader.integer("MAX_SESSION_SHARE_COUNT", 0, 1)
    inter_threads = reader.integer("TF_NUM_INTER_THREADS", 0)
    # TensorFlow takes the size of the threads that sessions share from the first session of the process.
    own_threads = reader.boolean("TF_USE_PER_SESSION_THREADS", False) or inter_threads > 0
    # Those that sessions share run anywhere.
    own_threads = own_threads or (bool(affinity.cores) and _INTER_VARIABLE in os.environ)
    return GraphSettings(
        intra_threads=reader.integer("TF_NUM_INTRA_THREADS", 0)
        or _divided(context, share_count, instance_count, affinity),
        inter_threads=inter_threads,
        own_threads=own_threads,
        in_caller=not own_threads and _INTER_VARIABLE not in os.environ,
        jit_level=_JIT_LEVELS[graph_level],
        mixed_precision=MIXED_PRECISION in accelerators,
        soft_placement=backend.boolean("allow-soft-placement", True),
        gpu_fraction=_fraction(backend),
        share_count=share_count,
        tags=tuple(tag.strip() for tag in (reader.text("TF_GRAPH_TAG") or SERVE).split(",")),
        signature=reader.text("TF_SIGNATURE_DEF") or "",
        init_ops_file=reader.text("TF_INIT_OPS_FILE") or "",
    )


def check_mixed_precision(model: str) -> None:
    """Check that the processor computes in bfloat16 itself.

    Raises:
        ModelLoadError: it does not, so that ``auto_mixed_precision`` would lose precision and gain nothing.
    """
    if not cpu_flags() & _BFLOAT16_FLAGS:
        known = ", ".join(sorted(_BFLOAT16_FLAGS))
        raise ModelLoadError(
            f"model '{model}': optimization.execution_accelerators names '{MIXED_PRECISION}', which computes in "
            f"bfloat16 on a processor, and this one cannot (it has none of {known}); remove it, or run "
            f"the model on a processor with AVX512-BF16, AMX or ARM's BF16"
        )


def cpu_flags() -> frozenset[str]:
    """The features of the processor by the names that Linux has for them; empty where it does not tell."""
    try:
        text = _CPU_INFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    return next((frozenset(v.split()) for k, _, v in lines if k.strip() in ("flags", "Features")), frozenset())


def _divided(context: BackendContext, share_count: int, instance_count: int, affinity: Affinity) -> int:
    if _INTRA_VARIABLE in os.environ:
        return 0
    sessions = -(-instance_count // share_count) if share_count else 1
    return threads_per_instance(context, sessions, affinity)


def _fraction(reader: ParameterReader) -> float:
    value = reader.number("gpu-memory-fraction", 0.0)
    if value > 1.0:
        raise reader.refused("gpu-memory-fraction", "a number from 0 to 1")
    return value


def _check_accelerators(model: str, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in ACCELERATORS:
            # The reference's words.
            raise ModelLoadError(
                f"model '{model}': unknown Execution Accelerator '{name}' is requested"
                f"{did_you_mean(name, ACCELERATORS) or ','} known are {', '.join(ACCELERATORS)}"
            )
    if MIXED_PRECISION in names and TENSORRT in names:
        raise ModelLoadError(f"model '{model}': Auto mixed precision can not be set with TFTRT optimization")
