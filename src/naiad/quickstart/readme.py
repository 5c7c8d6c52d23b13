"""The README of the repository: what each model is, and commands to try it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from naiad.quickstart import image
from naiad.quickstart.example_model import ExampleModel

_HEAD: Final = """\
# Quickstart models

`naiad quickstart` wrote this model repository. The models have the names, tensors and configurations of the field's
tutorials. The networks have the layers of the real ones and random weights: they take the real ones' time, and their
classes mean nothing.

{rows}

Serve them:

```bash
naiad serve {folder}
```

`request.json` in a model's folder is a request for it:

```bash
curl -s localhost:8000/v2/models/{first}/infer -d @{folder}/{first}/request.json
```
"""
_CLASSES: Final = """
Classify the sample image, `{image}`. `image_client.py` is one of the field's client examples:

```sh
python image_client.py -m {network} -c 3 -s INCEPTION {folder}/{image}
```
"""
_ENSEMBLE: Final = """
An ensemble takes the file of an image as it is:

```bash
curl -s localhost:8000/v2/models/ensemble_python_resnet50/infer --data-binary @{folder}/{image} \\
    -H 'Inference-Header-Content-Length: 0' -o /dev/null -w '%{{http_code}}\\n'
```
"""
_MEASURE: Final = """
Measure a model, with four callers at a time:

```bash
naiad perf -m {measured} -u localhost:8000 --percentile=95 --concurrency-range=4 --request-count=200
```
"""
_IMAGES: Final = """
Measure an ensemble with the sample image, one caller at a time:

```bash
naiad perf -m ensemble_python_resnet50 -u localhost:8000 --request-count=10 \\
    --input-data {folder}/ensemble_python_resnet50/input.json
```
"""
_BATCHING: Final = """
`linear_model` is not batched. Let the server batch, start it again, and measure again:

```bash
echo 'dynamic_batching {{ }}' >> {folder}/linear_model/config.pbtxt
```
"""
_NETWORKS: Final = ("densenet_onnx", "inception_onnx", "inception_graphdef")


def readme(folder: str, models: Sequence[ExampleModel]) -> str:
    """The text for a repository called ``folder`` with these models; it has commands for those that are there."""
    names = [model.name for model in models]
    rows = "\n".join(("| model | |", "|---|---|", *(f"| `{model.name}` | {model.summary} |" for model in models)))
    simple = [model.name for model in models if model.request]
    networks = [name for name in _NETWORKS if name in names]
    parts = [_HEAD if simple else _HEAD.partition("\n`request.json`")[0]]
    parts += [_CLASSES] if networks else []
    parts += [_ENSEMBLE] if "ensemble_python_resnet50" in names else []
    parts += [_MEASURE] if simple else []
    parts += [_IMAGES] if "ensemble_python_resnet50" in names else []
    parts += [_BATCHING] if "linear_model" in names else []
    return "".join(parts).format(
        folder=shlex.quote(folder or "."),
        rows=rows,
        first=next(iter(simple), ""),
        network=next(iter(networks), ""),
        image=image.FILE,
        measured="linear_model" if "linear_model" in names else next(iter(simple), ""),
    )
