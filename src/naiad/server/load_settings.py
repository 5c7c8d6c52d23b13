"""How the models of a server are loaded, from its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from naiad.backend_api.backend import Backend, BackendContext
from naiad.backend_api.host_policy import HostPolicies
from naiad.execution.model.rate_limits import RateLimits
from naiad.gpus.access import GpuAccess
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.repository.agents.agents import AgentDirectory
from naiad.scheduling.rate_limiter import ResourceLimit

if TYPE_CHECKING:
    from naiad.cache.local import LocalCache
    from naiad.cache.redis import RedisCache
    from naiad.options import ServerOptions
    from naiad.scheduling.admission import RequestBudget

OwnBackends = Mapping[str, Callable[[BackendContext], Backend]]
NO_BACKENDS: OwnBackends = {}


def load_settings(
    options: ServerOptions,
    cache: LocalCache | RedisCache | None,
    budget: RequestBudget,
    own_backends: OwnBackends,
    agents: AgentDirectory,
) -> LoadSettings:
    """How the options say that models are loaded.

    Args:
        own_backends: the backends that the program brings which embeds the server, by name.
    """
    return LoadSettings(
        options.settings_of,
        not options.disable_auto_complete_config,
        options.model_config_name,
        cache=cache,
        budget=budget,
        limits=_rate_limits(options),
        auto_warmup=options.auto_warmup,
        gpu_fallback=options.gpu_fallback == "cpu",
        gpus=GpuAccess.of(options.min_supported_compute_capability, options.model_load_gpu_limit),
        pinned_bytes=options.pinned_memory_pool_byte_size,
        retries=options.model_load_retry_count,
        agents=agents,
        policies=HostPolicies.of(options.host_policies),
        checks_accelerators=options.accelerator_check,
        own_backends=own_backends,
        wait_s=options.model_load_wait_secs,
    )


def replica_settings(options: ServerOptions, budget: RequestBudget) -> LoadSettings:
    """The same for a front-end process, which loads what the engine's process has loaded before.

    It has its part of the cores, none of the checks that a load has passed by then, and nothing that all loads share.
    """
    settings = load_settings(options, None, budget, NO_BACKENDS, AgentDirectory())
    return replace(
        settings,
        cores=max(1, settings.usable_cores // options.frontend_count),
        retries=0,
        limits=None,
        checks_accelerators=False,
        wait_s=0.0,
    )


def _rate_limits(options: ServerOptions) -> RateLimits | None:
    if not options.limits_rate:
        return None
    least: dict[tuple[str, int | None], ResourceLimit] = {}
    for resource in options.rate_limit_resource:
        # Of a resource that is given twice the smaller count holds, as in the reference.
        key = (resource.name.lower(), resource.device)
        if key not in least or resource.count < least[key].count:
            least[key] = ResourceLimit(resource.name, resource.count, resource.device)
    return RateLimits(list(least.values()))
