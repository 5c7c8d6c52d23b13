"""A page that takes an image or a text, asks a server for its classes, and shows them.

NAIAD_URL=localhost:8000 uvicorn --app-dir examples/web-client --port 8080 app:app
"""

import html
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import tritonclient.http.aio as aio
from fastapi import FastAPI, File, Form, UploadFile
from fastapi.responses import HTMLResponse
from tritonclient.http import InferInput
from tritonclient.utils import InferenceServerException

URL = os.environ.get("NAIAD_URL", "localhost:8000")
MAX_IMAGE_BYTES = 20 << 20

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Classes</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem; color: #1b1f24 }}
  form {{ display: flex; gap: .75rem; margin: 1rem 0; flex-wrap: wrap }}
  input[type=text] {{ flex: 1; padding: .4rem .6rem; min-width: 14rem }}
  button {{ padding: .4rem 1rem }}
  table {{ width: 100%; border-collapse: collapse; margin-top: 2rem }}
  td {{ padding: .3rem 0; vertical-align: middle }}
  td:nth-child(2) {{ width: 50% }}
  .bar {{ background: #2f6feb; height: .9rem; border-radius: .2rem }}
  .error {{ color: #b42318 }}
</style>
<h1>Which class is it?</h1>
<form method="post" action="image" enctype="multipart/form-data">
  <input type="file" name="image" accept="image/*" required aria-label="An image">
  <button>Classify the image</button>
</form>
<form method="post" action="text">
  <input type="text" name="text" placeholder="A sentence" required aria-label="A text">
  <button>Classify the text</button>
</form>
{result}
</html>
"""
ROW = '<tr><td>{name}</td><td><div class="bar" style="width: {width:.0f}%"></div></td><td>{score:.1%}</td></tr>'

client: aio.InferenceServerClient


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # One client for all requests: it keeps its connections.
    global client
    async with aio.InferenceServerClient(URL) as client:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/", response_class=HTMLResponse)
async def form() -> str:
    return PAGE.format(result="")


@app.post("/image", response_class=HTMLResponse)
async def image(image: UploadFile = File()) -> HTMLResponse:  # noqa: B008
    content = await image.read(MAX_IMAGE_BYTES + 1)
    if len(content) > MAX_IMAGE_BYTES:
        return failure(f"the image is larger than {MAX_IMAGE_BYTES >> 20} MiB", 413)
    return await classes("image_classes", "IMAGE", np.frombuffer(content, np.uint8)[None], "UINT8")


@app.post("/text", response_class=HTMLResponse)
async def text(text: str = Form()) -> HTMLResponse:
    return await classes("text_classes", "TEXT", np.array([text.encode()], object), "BYTES")


async def classes(model: str, name: str, array: np.ndarray, datatype: str) -> HTMLResponse:
    given = InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array)
    try:
        found = await client.infer(model, [given])
    except InferenceServerException as error:
        return failure(f"the server says: {error.message()}", 502)
    except OSError as error:
        return failure(f"no server at {URL}: {error}", 502)
    names, scores = found.as_numpy("CLASS").ravel(), found.as_numpy("SCORE").ravel()
    largest = max(scores.max(), 1e-9)
    rows = [
        ROW.format(name=html.escape(name.decode()), width=100 * score / largest, score=score)
        for name, score in zip(names, scores, strict=True)
    ]
    return HTMLResponse(PAGE.format(result=f"<table>{''.join(rows)}</table>"))


def failure(message: str, status: int) -> HTMLResponse:
    return HTMLResponse(PAGE.format(result=f'<p class="error">{html.escape(message)}</p>'), status)
