"""FastAPI: a route for each form of requests, without batching, which it has not. Run by gunicorn."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from network import Network, base64_of, row_of_base64, row_of_bytes, row_of_values
from pydantic import BaseModel

app = FastAPI()
network = Network()


class Values(BaseModel):
    """A row as numbers."""

    values: list[float]


class Scores(BaseModel):
    """Scores as numbers."""

    scores: list[float]


class Encoded(BaseModel):
    """A row, or scores, as base64."""

    b64: str


@app.post("/json")
def of_values(given: Values) -> Scores:
    """Numbers in, numbers out."""
    return Scores(scores=network.run(row_of_values(given.values)[None])[0].tolist())


@app.post("/b64")
def of_base64(given: Encoded) -> Encoded:
    """Base64 in, base64 out."""
    return Encoded(b64=base64_of(network.run(row_of_base64(given.b64)[None])[0]))


@app.post("/binary")
async def of_bytes(request: Request) -> Response:
    """Bytes in, bytes out."""
    row = row_of_bytes(await request.body())
    scores = await run_in_threadpool(network.run, row[None])
    return Response(scores[0].tobytes(), media_type="application/octet-stream")
