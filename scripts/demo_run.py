"""The demo itself: build the models, serve them, ask each one, compare, show how to go on."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import demo_models
import numpy as np
import tritonclient.http as triton
from demo_server import DemoServer, ServerFailedError, is_free

if TYPE_CHECKING:
    from types import FrameType

    from demo_models import DemoModel

ROOT = Path(__file__).resolve().parent.parent
HTTP_PORT, METRICS_PORT = 8000, 8002
READY_S = 180.0
SHOWN_MODEL = "squeezenet"
WRONG_ANSWER, BAD_OPTION, NO_SERVER = 1, 2, 4

HOW_TO_GO_ON = """\
The server answers at http://{url}. Any Triton client can ask it; with curl:

  curl -s {url}/v2/models/{model}
  head -c 602112 /dev/zero | curl -s {url}/v2/models/{model}/infer \\
      -H 'Inference-Header-Content-Length: 0' --data-binary @- --output answer.bin

and with Python ({python}):

  import numpy as np, tritonclient.http as triton
  image = triton.InferInput("{input}", {shape}, "FP32")
  image.set_data_from_numpy(np.random.rand{dims}.astype(np.float32))
  answer = triton.InferenceServerClient("{url}").infer("{model}", [image])
  print(answer.as_numpy("{output}").argmax())

The models are in {repository}: edit one, or put your own beside them, and start again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered to the shipped question, and how far it is from the shipped answer."""

    model: DemoModel
    values: demo_models.FloatArray
    expected: demo_models.FloatArray
    batched: demo_models.FloatArray | None
    milliseconds: float

    @property
    def is_right(self) -> bool:
        """Within the tolerance of the ``onnx`` package's own test, and each row of a batch as well."""
        rows = [] if self.batched is None else list(self.batched)
        network = self.model.network
        answers = [self.values, *(row[np.newaxis] for row in rows)]
        return all(
            a.shape == self.expected.shape and np.allclose(a, self.expected, rtol=network.rtol, atol=network.atol)
            for a in answers
        )


def main() -> int:
    """Run the demo; the exit status is described by ``scripts/demo --help``."""
    # SIGINT too: Python leaves it ignored where it was, as in a background job of a script.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    options = _options()
    try:
        return run(options)
    except ServerFailedError as error:
        print(f"The demo could not serve its models: {error}", file=sys.stderr)
        return NO_SERVER
    except KeyboardInterrupt:
        return 130


def run(options: argparse.Namespace) -> int:
    """Serve, ask and compare; then serve on until Ctrl-C unless ``options.once``."""
    port = choose_port(options.http_port)
    models = demo_models.build(options.models)
    print(f"{options.models}: {_count(models)} models built from the onnx package; starting the server", flush=True)
    started = time.monotonic()
    # Nobody looks at the metrics of a server that stops after the answers, and another program may take the port.
    is_usual = not options.once and port != METRICS_PORT and is_free(METRICS_PORT)
    metrics_port = METRICS_PORT if is_usual else 0
    server = DemoServer(options.models, port, metrics_port, READY_S, options.verbose)
    try:
        print(f"ready after {time.monotonic() - started:.1f} s at http://{server.url}\n", flush=True)
        is_right = ask_all(server.url, models)
        if not options.once:
            _show_how_to_go_on(server.url, models, options.models)
            _serve_on(server)
        return 0 if is_right else WRONG_ANSWER
    finally:
        server.stop()
        if options.once:
            print("The server has stopped. Without --once it goes on, and the demo shows how to ask it.", flush=True)


def choose_port(asked: int | None) -> int:
    """The port asked for, else 8000, else 0 (any free one). Ends the demo when the one asked for is taken."""
    if asked is not None:
        if asked and not is_free(asked):
            print(
                f"Port {asked} is taken: name another with --http-port, or leave it out.",
                file=sys.stderr,
            )
            sys.exit(BAD_OPTION)
        return asked
    if is_free(HTTP_PORT):
        return HTTP_PORT
    print(f"port {HTTP_PORT} is taken; using a free one")
    return 0


def ask_all(url: str, models: list[DemoModel]) -> bool:
    """Ask every model, print a line about each; True when every answer is right."""
    with triton.InferenceServerClient(url, connection_timeout=60, network_timeout=60) as client:
        answers = [ask(client, model) for model in models]
    for answer in answers:
        _show(answer)
    wrong = [a.model.name for a in answers if not a.is_right]
    print(f"\nWRONG: {', '.join(wrong)}\n" if wrong else "\nEvery answer is the one that ships with the network.\n")
    return not wrong


def ask(client: triton.InferenceServerClient, model: DemoModel) -> Answer:
    """One request to the model as it ships and, where there is one, a batch of three to its batching copy."""
    question = demo_models.example_input(model.shape)
    started = time.perf_counter()
    values = infer(client, model.name, model, question)
    milliseconds = (time.perf_counter() - started) * 1e3
    batch = np.repeat(question, 3, axis=0)
    batched = infer(client, model.batch_name, model, batch) if model.batch_name else None
    return Answer(model, values, model.network.expected(), batched, milliseconds)


def infer(client: triton.InferenceServerClient, name: str, model: DemoModel, data: demo_models.FloatArray) -> Any:
    """The output array of one inference request."""
    tensor = triton.InferInput(model.input, list(data.shape), "FP32")
    tensor.set_data_from_numpy(data)
    wanted = triton.InferRequestedOutput(model.output, binary_data=True)
    return client.infer(name, [tensor], outputs=[wanted]).as_numpy(model.output)


def _show(answer: Answer) -> None:
    values, verdict = answer.values, "ok" if answer.is_right else "WRONG"
    first = " ".join(f"{v:.6f}" for v in values.ravel()[:3])
    batch = "" if answer.batched is None else f"; a batch of {len(answer.batched)} too"
    shape = "x".join(map(str, values.shape))
    print(
        f"  {answer.model.name:14} answered {shape:11} in {answer.milliseconds:6.1f} ms: {first} ... "
        f"expected {answer.expected.ravel()[0]:.6f} ...  {verdict}{batch}"
    )


def _show_how_to_go_on(url: str, models: list[DemoModel], repository: Path) -> None:
    model = next(m for m in models if m.name == SHOWN_MODEL)
    shape = model.shape
    places = {"url": url, "model": model.name, "input": model.input, "output": model.output, "shape": list(shape)}
    print(HOW_TO_GO_ON.format(**places, dims=shape, python=sys.executable, repository=repository))


def _serve_on(server: DemoServer) -> None:
    try:
        print("\nServing until Ctrl-C.", flush=True)
        server.show_log = True
        server.wait()
    except KeyboardInterrupt:
        print("\nstopping the server", flush=True)


def _count(models: list[DemoModel]) -> int:
    return sum(2 if model.batch_name else 1 for model in models)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", add_help=False)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--http-port", type=int, default=os.environ.get("NAIAD_HTTP_PORT"))
    parser.add_argument("--models", type=Path, default=os.environ.get("NAIAD_DEMO_MODELS", ROOT / "demo-models"))
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
