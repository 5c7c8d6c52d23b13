"""Options of ``naiad perf``: which model and service, how requests are sent, and the server's address."""

from __future__ import annotations

from typing import Final

from naiad.perf.options.kinds import (
    OPTIONAL_BOOLEAN,
    PATH,
    TEXT,
    choice,
    existing_file,
    flag,
)
from naiad.perf.options.option import PerfGroup, PerfOption
from naiad.perf.options.values import ADDRESS, COMPOSING_MODELS, GRPC_METHOD, HEADER, REQUEST_PARAMETER

_FILE: Final = existing_file("The value must be a valid file path.")
_TLS_TYPE: Final = choice("PEM", "DER")
_WITHOUT_EFFECT: Final = "has no effect in naiad perf"
SERVICE_KINDS: Final = ("triton", "in_process", "openai", "tfserving", "torchserve")
_SERVICE_KIND: Final = choice(
    *SERVICE_KINDS,
    refusal=(
        "Unsupported type provided: '{text}'. The available options are 'triton', 'in_process', 'triton_c_api', "
        "'openai', 'tfserving', or 'torchserve'."
    ),
    other_names={"triton_c_api": "in_process", "dynamic_grpc": "dynamic_grpc"},
)

GENERAL: Final = (
    PerfOption(
        "", "target.model", TEXT, PerfGroup.GENERAL, "Name of the model. Required.", letter="m", title="-m (model name)"
    ),
    PerfOption(
        "", "target.version", TEXT, PerfGroup.GENERAL, "Version of the model; the latest one without it.", letter="x"
    ),
    PerfOption(
        "service-kind",
        "target.service_kind",
        _SERVICE_KIND,
        PerfGroup.GENERAL,
        "What kind of service is measured: triton is any server of the KServe v2 protocol; in_process runs the model "
        "in this process, without a network, and triton_c_api is another name for it; openai is a service with the "
        "API of OpenAI; tfserving is TensorFlow Serving over REST; torchserve is TorchServe.",
        default="triton",
    ),
    PerfOption(
        "endpoint",
        "target.endpoint",
        TEXT,
        PerfGroup.GENERAL,
        "Path of an OpenAI service, such as v1/chat/completions. Required for --service-kind=openai, else ignored.",
    ),
    PerfOption(
        "bls-composing-models",
        "target.bls_composing_models",
        COMPOSING_MODELS,
        PerfGroup.GENERAL,
        "Models that the model calls (BLS), each with its version behind a colon if need be: the server's part of the "
        "report lists them.",
    ),
    PerfOption(
        "model-signature-name",
        "target.model_signature_name",
        TEXT,
        PerfGroup.GENERAL,
        "Signature of a SavedModel; only for --service-kind=tfserving.",
        default="serving_default",
    ),
    PerfOption(
        "tfserving-format",
        "target.tfserving_format",
        choice("auto", "row", "column"),
        PerfGroup.GENERAL,
        "Whether requests to TensorFlow Serving hold rows (instances) or columns (inputs); auto is row where the first "
        "dimension of all inputs may vary.",
        default="auto",
        is_newer=True,
    ),
    PerfOption(
        "", "output.verbose", flag(1), PerfGroup.GENERAL, "More in the report; twice for more still.", letter="v"
    ),
    PerfOption(
        "enable-mpi",
        "",
        flag(),
        PerfGroup.GENERAL,
        "Refused: start one naiad perf for each model. --client-workers spreads the load of one over processes.",
    ),
)

REQUEST: Final = (
    PerfOption(
        "",
        "target.protocol",
        choice("http", "grpc", refusal="The value should be either HTTP or gRPC.", ignore_case=True),
        PerfGroup.REQUEST,
        "Protocol of the requests.",
        letter="i",
        title="-i (protocol)",
        default="http",
    ),
    PerfOption(
        "async",
        "target.is_async",
        flag(True),
        PerfGroup.REQUEST,
        "Keep requests in flight without a thread for each. Requests of sequence models and streams always are.",
        letter="a",
    ),
    PerfOption(
        "sync", "target.is_async", flag(False), PerfGroup.REQUEST, "Send the next request once the last is answered."
    ),
    PerfOption(
        "streaming",
        "target.streaming",
        flag(),
        PerfGroup.REQUEST,
        "Send the requests over streams, or read responses as streams of events; gRPC, in_process and openai only. "
        "Decoupled models need it.",
    ),
    PerfOption(
        "",
        "target.headers",
        HEADER,
        PerfGroup.REQUEST,
        "Header of every HTTP request, or metadata of every gRPC call.",
        letter="H",
        is_repeatable=True,
    ),
    PerfOption(
        "request-parameter",
        "target.request_parameters",
        REQUEST_PARAMETER,
        PerfGroup.REQUEST,
        "Parameter of every request, of the type bool, int or string: max_tokens:256:int. gRPC only.",
        is_repeatable=True,
    ),
    PerfOption(
        "grpc-compression-algorithm",
        "target.compression",
        choice(
            "none",
            "gzip",
            "deflate",
            refusal="Unsupported type provided: '{text}'. The available options are 'gzip', 'deflate', or 'none'.",
        ),
        PerfGroup.REQUEST,
        "Compression of the requests; gRPC only.",
        default="none",
    ),
    PerfOption(
        "grpc-method",
        "",
        GRPC_METHOD,
        PerfGroup.REQUEST,
        "Read, but without effect: it belongs to --service-kind=dynamic_grpc, which is refused.",
        remark=f"--grpc-method {_WITHOUT_EFFECT}: it belongs to --service-kind=dynamic_grpc, which is refused",
        is_newer=True,
    ),
    PerfOption(
        "proto",
        "",
        PATH,
        PerfGroup.REQUEST,
        "Read, but without effect: it belongs to --service-kind=dynamic_grpc, which is refused.",
        remark=f"--proto {_WITHOUT_EFFECT}: it belongs to --service-kind=dynamic_grpc, which is refused",
        is_newer=True,
    ),
)

SERVER: Final = (
    PerfOption(
        "",
        "target.url",
        ADDRESS,
        PerfGroup.SERVER,
        "Address of the server. Over gRPC the default is localhost:8001, for TensorFlow Serving localhost:8501, for "
        "TorchServe localhost:8080.",
        letter="u",
        default="localhost:8000",
    ),
    PerfOption(
        "model-repository",
        "target.model_repository",
        PATH,
        PerfGroup.SERVER,
        "Folder with the model, for --service-kind=in_process, which needs it.",
    ),
    PerfOption(
        "triton-server-directory",
        "",
        PATH,
        PerfGroup.SERVER,
        "Accepted without effect: --service-kind=in_process runs the model in naiad itself and loads no library.",
        remark=f"--triton-server-directory {_WITHOUT_EFFECT}: the model runs in naiad itself, without a library",
    ),
    PerfOption(
        "ssl-grpc-use-ssl", "target.use_tls", OPTIONAL_BOOLEAN, PerfGroup.SERVER, "Use TLS over gRPC.", default="false"
    ),
    PerfOption(
        "ssl-grpc-root-certifications-file",
        "target.tls.grpc_root_certifications_file",
        _FILE,
        PerfGroup.SERVER,
        "PEM file of the authorities that the server's certificate is checked against, over gRPC.",
    ),
    PerfOption(
        "ssl-grpc-private-key-file",
        "target.tls.grpc_private_key_file",
        _FILE,
        PerfGroup.SERVER,
        "PEM file of the client's private key, over gRPC.",
    ),
    PerfOption(
        "ssl-grpc-certificate-chain-file",
        "target.tls.grpc_certificate_chain_file",
        _FILE,
        PerfGroup.SERVER,
        "PEM file of the client's certificates, over gRPC.",
    ),
    PerfOption(
        "ssl-https-verify-peer",
        "target.tls.https_verify_peer",
        choice("0", "1", refusal="The value must be either 0 or 1."),
        PerfGroup.SERVER,
        "Whether the server's certificate is checked, over HTTPS.",
        default="1",
    ),
    PerfOption(
        "ssl-https-verify-host",
        "target.tls.https_verify_host",
        choice("0", "1", "2", refusal="The value must be either 0, 1, or 2."),
        PerfGroup.SERVER,
        "Whether the certificate has to name the server's host, over HTTPS: 2 for yes, 0 for no; 1 counts as 2.",
        default="2",
    ),
    PerfOption(
        "ssl-https-ca-certificates-file",
        "target.tls.https_ca_certificates_file",
        _FILE,
        PerfGroup.SERVER,
        "PEM file of the authorities that the server's certificate is checked against, over HTTPS.",
    ),
    PerfOption(
        "ssl-https-client-certificate-file",
        "target.tls.https_client_certificate_file",
        _FILE,
        PerfGroup.SERVER,
        "File of the client's certificate, over HTTPS.",
    ),
    PerfOption(
        "ssl-https-client-certificate-type",
        "target.tls.https_client_certificate_type",
        _TLS_TYPE,
        PerfGroup.SERVER,
        "Form of the client's certificate.",
        default="PEM",
    ),
    PerfOption(
        "ssl-https-private-key-file",
        "target.tls.https_private_key_file",
        _FILE,
        PerfGroup.SERVER,
        "File of the client's private key, over HTTPS.",
    ),
    PerfOption(
        "ssl-https-private-key-type",
        "target.tls.https_private_key_type",
        _TLS_TYPE,
        PerfGroup.SERVER,
        "Form of the client's private key.",
        default="PEM",
    ),
)
