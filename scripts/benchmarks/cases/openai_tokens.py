"""Chats in parts over the API of OpenAI: what a part costs, in turns with LitServe. The model itself does next to
nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from .. import machine
from ..figures import Bound, CaseError, Figure
from ..h2load import HttpLoad, measure_http
from ..infer import Request, ask_well
from ..peers.launch import await_answer, running
from ..peers.table import litserve_program
from ..python_models import add_tokens
from ..rounds import alternate, median, median_ratio
from ..servers import Server, naiad
from ..settings import Settings

CALLERS = (1, 16)
TOKENS = 50
SERVICE = "OpenAI HTTPService"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
WANTED = 3.0
_CHAT = {"model": "tokens", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
_REQUEST = Request("/v1/chat/completions", {"Content-Type": "application/json"}, json.dumps(_CHAT).encode())


def measure(settings: Settings) -> Iterator[Figure]:
    """Tokens a second and the processor time of one, of both servers."""
    with _naiad(settings) as ours, _litserve(settings) as theirs:
        for callers in CALLERS:
            measures = {server.name: partial(_load, server, callers, settings) for server in (ours, theirs)}
            for take in measures.values():
                take()
            samples = alternate(settings.rounds, measures)
            yield from _figures(f"openai_tokens_{callers}", samples[ours.name], samples[theirs.name])


@contextmanager
def _naiad(settings: Settings) -> Iterator[Server]:
    repository, template = settings.work / "tokens", settings.work / "chat.jinja"
    add_tokens(repository, "tokens", TOKENS)
    template.write_text(TEMPLATE)
    options = ("--allow-openai=true", "--openai-address=127.0.0.1", "--openai-port=0", f"--chat-template={template}")
    with naiad(repository, settings.work, machine.server_core(), options, SERVICE) as server:
        yield server


@contextmanager
def _litserve(settings: Settings) -> Iterator[Server]:
    folder, port = settings.work / f"litserve-{time.monotonic_ns()}", machine.free_port()
    folder.mkdir()
    variables = {"PEER_PORT": str(port), "PEER_TOKENS": str(TOKENS)}
    began = time.perf_counter()
    with running(litserve_program("litserve_tokens.py"), folder, variables) as (process, log):
        await_answer(process, log, lambda: _body_bytes(port))
        yield Server("litserve", process.pid, port, time.perf_counter() - began)


def _body_bytes(port: int) -> int:
    """The length of the body of an answer, which has all tokens."""
    _, body = ask_well(port, _REQUEST)
    if body.count(b'"token "') != TOKENS or not body.endswith(b"data: [DONE]\n\n"):
        raise CaseError(f"expected {TOKENS} tokens, found: {body[-500:].decode(errors='replace')}")
    return len(body)


def _load(server: Server, callers: int, settings: Settings) -> HttpLoad:
    return measure_http(server, _REQUEST, _body_bytes(server.port), callers, settings.seconds, settings.work)


def _figures(name: str, ours: list[HttpLoad], theirs: list[HttpLoad]) -> Iterator[Figure]:
    for title, samples in ((name, ours), (f"{name}_litserve", theirs)):
        yield Figure(f"{title}_rate", median(samples, lambda s: s.rate) * TOKENS, "tokens/s")
        yield Figure(f"{title}_cpu", median(samples, lambda s: s.cpu_us) / TOKENS, "CPU us/token")
    yield Figure(f"{name}_ratio", median_ratio(ours, theirs, lambda s: s.rate), "of its rate", Bound(">=", WANTED))
    yield Figure(f"{name}_saved", median_ratio(theirs, ours, lambda s: s.cpu_us), "times cheaper", Bound(">=", WANTED))
