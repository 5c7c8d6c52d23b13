"""Parameters that every model may have, whatever runs it."""

from __future__ import annotations

from typing import Final

from naiad.config.known_parameters.parameter import KnownParameter

BATCH_STRATEGY: Final = "TRITON_BATCH_STRATEGY_PATH"

PARAMETERS = (
    KnownParameter("execution", 'where instances run: "thread", "process", "shared" or "shared:GROUP"'),
    KnownParameter("execute-timeout-seconds", "ends a process whose batch runs longer than this, in seconds"),
    KnownParameter("memory-limit-mb", "ends a process with more private memory than this, in megabytes"),
    KnownParameter("environment", "a requirements file: the packages of the model's process (execution=process)"),
    KnownParameter("python", "the Python of the model's process (execution=process): a version or a path"),
    KnownParameter("EXECUTION_ENV_PATH", "a packed environment for the model's process (execution=process)"),
    KnownParameter(BATCH_STRATEGY, "a file that decides which requests make a batch"),
    KnownParameter("MAX_BATCH_VOLUME_BYTES", "for that file: the reference's example bounds a batch with it"),
    KnownParameter("priority-max-wait-microseconds", "a request that waited this long is served before any priority"),
    KnownParameter("max_batch_bytes", "the most bytes of one batch"),
    KnownParameter("batch_error", 'whether a failed batch is run again in parts: "split" or "fail"'),
    KnownParameter("batching.*", "how unequal requests are padded, by tensor"),
    KnownParameter("route.*", "aliases of versions, shares of traffic and shadow versions"),
    KnownParameter("slo", 'tunes the model while it serves, as in "p99=20ms"; "off" with --slo'),
    KnownParameter("memory.pinned", "whether the model stays loaded when memory is short"),
    KnownParameter("memory.bytes", "the memory of the loaded model in bytes"),
)
