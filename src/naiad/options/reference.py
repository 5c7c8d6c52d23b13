"""How the options differ from those of the reference server."""

from __future__ import annotations

from typing import Final

OWN: Final = frozenset(
    {
        "accelerator_check",
        "allow_client_shm",
        "allow_openai",
        "api_key",
        "api_key_file",
        "auto_warmup",
        "chat_template",
        "dashboard",
        "default_max_tokens",
        "grpc_max_connections",
        "grpc_transport",
        "http_cors_origin",
        "http_idle_timeout_secs",
        "http_max_connections",
        "http_port_serves_grpc",
        "http_root_cert",
        "http_server_cert",
        "http_server_key",
        "http_standard_status",
        "load_on_demand_secs",
        "lora_separator",
        "max_in_flight_bytes",
        "max_in_flight_requests",
        "max_in_flight_requests_per_model",
        "max_tool_call_parse_bytes",
        "model_idle_unload_secs",
        "model_memory_budget",
        "model_repository_mirror",
        "model_repository_mirror_size",
        "openai_address",
        "openai_backend",
        "openai_port",
        "openai_restricted_api",
        "overload_status",
        "repoagent_timeout_secs",
        "sagemaker_address",
        "shutdown_delay",
        "tokenizer",
        "tool_call_parser",
        "vertex_ai_address",
    }
)
"""Options that the reference does not have, by their fields of ``ServerOptions``.

An abbreviation that fits both one of these and one of the reference's stands for the reference's.
"""
