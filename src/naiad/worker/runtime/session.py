"""The session of a worker: it loads the model, runs its batches, and sends its calls and control requests."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from ..api import current
from ..api.control import PendingReply
from ..api.model_config import ModelConfig
from ..ipc import frames as protocol
from ..ipc.client_memory import Parts, Regions
from ..ipc.errors import ServerGoneError, TritonError, TritonModelException, describe, full_traceback
from ..ipc.memory_limit import memory_limit
from ..ipc.reader import Channel, Waiter
from ..ipc.segments import notice
from .batch import read_batch
from .executor import Executor
from .flow_control import is_in_loop
from .inbox import Inbox
from .lost_gpu import lost_gpu
from .model_loader import load_model_class
from .output_warnings import UnexpectedOutputs
from .readiness import ReadinessCheck
from .writer import FrameWriter, error_frame, json_frame

if TYPE_CHECKING:
    import asyncio

    from ..api.inference_response import InferenceResponse
    from ..api.tensor import Tensor
    from ..ipc.types import Locate
    from .async_runner import LoopRunner, SideLoop

TICK_S = 0.25
"""The interval at which another thread reads from the connection while the model keeps the main thread busy."""
AHEAD_BYTES = 1 << 20
"""The most bytes of responses that are sent before the server has read the earlier ones."""
LAST_S = 3.0
"""How long a worker runs on after its server is gone."""


class Session:
    """One model instance in this process, and its connection to the server."""

    def __init__(self, connection: socket.socket) -> None:
        self.instance = ""
        self.is_decoupled = False
        self.model_directory = ""
        self.channel = Channel(connection, self._handle)
        self._unexpected_outputs = UnexpectedOutputs(self.log)
        self.regions = Regions()
        self.out = FrameWriter(connection, self._look, self._unexpected_outputs.look_at, self.regions)
        self._arrivals = Inbox(self.channel, self.out, self._work_arrived, self._check_ready, self.regions, self._look)
        self.inbox = self._arrivals.inbox
        self.take_work = self._arrivals.take
        self.locate: Locate = self._arrivals.locate
        self._main = Waiter()
        self._model: Any = None
        self._executor: Executor | None = None
        self._readiness: ReadinessCheck | None = None
        self._runner: LoopRunner | None = None
        self._side_loop: SideLoop | None = None
        self._loops: dict[Any, int] = {}
        self._numbers = itertools.count(1)
        self._is_running = False
        self._is_over = False
        self._caught_up_bytes = 0

    # The life of the model

    def serve(self) -> int:
        """Serve until the server ends the worker; the exit code."""
        # Before the model loads: this thread notices a server that ends during ``initialize``.
        threading.Thread(target=self._keep_looking, name="naiad", daemon=True).start()
        try:
            _, _, payload, _ = self._arrivals.next(self._main)
            command = json.loads(payload)
            self.instance = command["args"].get("model_instance_name", command["args"].get("model_name", ""))
            self.model_directory = command.get("model_directory") or os.path.dirname(
                os.path.abspath(command["model_py"])
            )
            return self._complete(command) if command["mode"] == "complete" else self._run(command)
        except ServerGoneError:
            self._finalize()
            return 1

    def _complete(self, command: Mapping[str, Any]) -> int:
        try:
            model_class = _import(command)
            config = ModelConfig(json.dumps(command["config"]))
            if hasattr(model_class, "auto_complete_config"):
                config = model_class.auto_complete_config(config)
            if not isinstance(config, ModelConfig):
                raise TritonModelException(
                    f"auto_complete_config function in model '{command['args'].get('model_name', '')}' must return a "
                    "valid pb.ModelConfig object."
                )
            frame = json_frame(protocol.CONFIG, 0, {"config": config.as_dict()})
        # SystemExit as well: the server needs the reason, not an exit code.
        except BaseException as error:
            return self._report_failure(error)
        self.out.post(frame)
        return 0

    def _run(self, command: Mapping[str, Any]) -> int:
        try:
            self._start_model(command)
        except ServerGoneError:
            raise
        except BaseException as error:
            return self._report_failure(error)
        ready = {
            "is_ready": hasattr(self._model, "is_ready"),
            "pid": os.getpid(),
            "python": ".".join(map(str, sys.version_info[:3])),
        }
        self.out.post_json(protocol.READY, 0, ready)
        self._execute_until_the_end()
        self._finalize()
        return 0

    def _start_model(self, command: Mapping[str, Any]) -> None:
        self._model = model = _import(command)()
        self.is_decoupled = command["decoupled"]
        self._executor = Executor(
            self, model, command["model_py"], self.is_decoupled, command.get("splits_failed", False)
        )
        self._readiness = ReadinessCheck(self, model)
        # Before ``initialize``: what that ties to a loop has to belong to the one that will run.
        if self._executor.is_async:
            from .async_runner import LoopRunner

            self._runner = LoopRunner(self)
        self._unexpected_outputs.compare_with(command["args"])
        if hasattr(model, "initialize"):
            model.initialize(dict(command["args"]))
        if not hasattr(model, "execute"):
            text = f"{command['model_py']} has no execute(self, requests), so that every request fails"
            self.log("WARNING", text, once=f"no execute {command['model_py']}")
        # Not before: calls of other models are refused in ``initialize``, as in the reference.
        self._is_running = True

    def _report_failure(self, error: BaseException) -> int:
        told = (str(error), "") if _is_our_own(error) else (describe(error), full_traceback(error))
        self.out.post_json(protocol.FAILED, 0, dict(zip(("message", "traceback"), told)))
        return 1

    def _execute_until_the_end(self) -> None:
        executor, arrivals = self._executor, self._arrivals
        if executor is None:
            return
        if self._runner is not None:
            self._runner.run(executor)
            return
        while True:
            work = arrivals.next(self._main)
            batch = read_batch(self, *work)
            if batch is None:
                return
            # Neither name may outlive its batch: segments are released with the last reference to their tensors.
            del work
            executor.run(batch)
            del batch

    def _finalize(self) -> None:
        # Calls of other models end here: ``finalize`` may not make any.
        was_running, self._is_running = self._is_running, False
        try:
            if was_running and hasattr(self._model, "finalize"):
                self._model.finalize()
        except BaseException as error:
            self.log("ERROR", f"finalize() of model instance '{self.instance}' failed: {describe(error)}")
        finally:
            self._is_over = True
            if self._runner is not None:
                self._runner.close()
            if self._side_loop is not None:
                self._side_loop.stop()
            # Its ``__del__``, and those of what it holds, run while the interpreter is whole.
            self._model = self._executor = self._readiness = self._runner = None

    def leave_if_gpu_lost(self, error: object) -> None:
        """End the process, whose responses are sent, where it has lost a GPU: the server starts another."""
        if lost := lost_gpu(error):
            self.log("ERROR", f"{lost} is lost to model instance '{self.instance}', whose process ends")
            os._exit(1)

    # What arrives

    def _handle(self, kind: int, number: int, payload: bytearray) -> None:
        self._arrivals.handle(kind, number, payload)

    def _work_arrived(self) -> None:
        if self._runner is not None:
            self._runner.work_arrived()
        else:
            self._main.wake()

    def _check_ready(self, number: int) -> None:
        if self._readiness is not None:
            self._readiness.start(number)

    def _keep_looking(self) -> None:
        """Read from the server, and notice its end, while the model keeps all other threads busy."""
        pause = threading.Event()
        while not self._is_over:
            pause.wait(TICK_S)
            self._look()
            if self.out.cuda_error:
                # Of a response: the model may have caught the exception.
                error, self.out.cuda_error = self.out.cuda_error, ""
                self.leave_if_gpu_lost(error)
            # The next look ends the process then.
            with contextlib.suppress(ServerGoneError):
                self.out.trim()
                self.regions.trim()
                if text := notice.take():
                    self.log("WARNING", text, once="memory")
        # Threads of the model may keep the process alive after finalize(): the end of the server has to end it.
        with contextlib.suppress(ServerGoneError):
            while True:
                self.channel.poll()
                pause.wait(TICK_S)
        # A few seconds for the threads of the model, which may be about to end by themselves.
        pause.wait(LAST_S)
        os._exit(1)

    def _look(self) -> None:
        """Read what has arrived, unless another thread does. Without the server this process ends at once."""
        try:
            self.channel.poll()
        except ServerGoneError:
            if not self._is_over:
                # No clean-up: a model in the middle of ``execute`` could hold that up for ever.
                os._exit(1)

    def forked(self) -> None:
        """Detach from the connection, which a forked process only inherits."""
        self._is_over = True
        # The descriptor of the forked process alone: the connection of the worker stays open.
        self.channel.close()

    # Responses

    def respond(
        self, number: int, response: InferenceResponse | None, wanted: Any, final: bool, parts: Parts | None = None
    ) -> None:
        """Send a response, or the end of the responses."""
        paused = self._arrivals.paused
        # First: this may bring in the pause that the next line waits for.
        if self.out.sent_bytes - self._caught_up_bytes > AHEAD_BYTES:
            self._catch_up()
        paused.wait(number)
        self.out.respond(number, response, wanted, protocol.FLAG_FINAL if final else 0, parts)
        if final:
            # The request is over, so nothing else would remove its entry.
            paused.resume(number)

    def _catch_up(self) -> None:
        """Wait until the server has read what was sent: it may have to pause a request."""
        # Before the round trip, so that other threads do not make one for the same bytes.
        self._caught_up_bytes = self.out.sent_bytes
        if not is_in_loop():
            # A server that is gone shows in the next frame that is sent.
            with contextlib.suppress(TritonModelException):
                self.send_request({"what": protocol.CATCH_UP})

    def abandoned(self, number: int, has_responded: bool) -> None:
        """End a request whose response sender the model dropped without a final response."""
        # Senders die with the interpreter as well, when the server ends their requests itself, and as copies in a fork.
        if self._is_over:
            return
        if has_responded:
            head = protocol.RESPONSE_HEAD.pack(number, 0, protocol.FLAG_FINAL | protocol.FLAG_EMPTY, 0, 0)
            self.out.post(protocol.FRAME.pack(protocol.RESPONSE, len(head), number) + head)
            return
        text = (
            f"Model instance '{self.instance}' released the request without a final response: its response sender "
            "must send(flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
        )
        self.out.post(error_frame(number, TritonError(text)))

    def is_cancelled(self, number: int) -> bool:
        """Whether the caller cancelled a request."""
        cancelled = self._arrivals.cancelled
        if number not in cancelled:
            # A model may poll this while no other thread reads: CANCEL may lie unread.
            self._look()
        return number in cancelled

    # Calls and control requests

    def start_call(
        self,
        head: Mapping[str, Any],
        tensors: Sequence[Tensor],
        options: Mapping[str, Any],
        deliver: Callable[[InferenceResponse | None, bool], object],
    ) -> int:
        """Call another model; the number of the call.

        Raises:
            TritonModelException: the model is not executing.
        """
        if not self._is_running:
            raise TritonModelException("BLS is only supported during the 'execute' function.")
        number = next(self._numbers)
        # Before it is sent: another thread may read the response before this one goes on.
        self._arrivals.calls[number] = deliver
        try:
            self.out.call(number, head, tensors, options)
        except BaseException:
            # Never sent, so no response would remove it.
            del self._arrivals.calls[number]
            raise
        return number

    def cancel_call(self, number: int) -> None:
        """Cancel a call."""
        self.out.post(protocol.FRAME.pack(protocol.CANCEL_CALL, 0, number))

    def send_request(self, content: Mapping[str, Any]) -> Any:
        """Send a control request and wait for its value.

        Raises:
            TritonModelException: the server refused it.
        """
        number, pending = next(self._numbers), PendingReply()
        # Before it is sent, as in ``start_call``.
        self._arrivals.replies[number] = pending
        self.out.post_json(protocol.CONTROL_REQUEST, number, content)
        self.channel.wait_until(pending.has_reply, pending.waiter)
        return pending.value()

    def notify(self, content: Mapping[str, Any]) -> None:
        """Send a notification, unless the session is over."""
        if not self._is_over:
            self.out.post_json(protocol.NOTIFICATION, 0, content)

    def log(self, level: str, message: str, file: str = __file__, line: int = 0, once: str = "") -> None:
        """Write a line into the server's log; of lines with the same ``once`` the server writes the first."""
        content = {"level": level, "file": file, "line": line, "message": message}
        if once:
            content["once"] = once
        self.out.post(json_frame(protocol.LOG, 0, content))

    # Loops

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop for coroutines of the model: the main thread's, or one in a thread of its own."""
        if self._runner is not None:
            return self._runner.loop
        if self._side_loop is None:
            from .async_runner import SideLoop

            self._side_loop = SideLoop()
        return self._side_loop.loop

    def read_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let a loop read from the connection while it waits for something."""
        # That loop reads all the time.
        if self._runner is not None and loop is self._runner.loop:
            return
        # Counted: a loop has one reader per descriptor, and several of its coroutines may wait.
        self._loops[loop] = self._loops.get(loop, 0) + 1
        if self._loops[loop] == 1:
            loop.add_reader(self.channel.fileno(), self._look)

    def stop_reading_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """End one ``read_in`` of a loop."""
        # The runner's loop is never counted.
        if loop not in self._loops:
            return
        self._loops[loop] -= 1
        if not self._loops[loop]:
            del self._loops[loop]
            loop.remove_reader(self.channel.fileno())


def _import(command: Mapping[str, Any]) -> Any:
    memory_limit.apply(command.get("memory_bytes", 0))
    return load_model_class(command["model_py"], command["args"].get("model_version", ""), command["paths"])


def _is_our_own(error: BaseException) -> bool:
    """Whether this side raised an error, and not the model, whose lines would say where."""
    return isinstance(error, TritonModelException) and "\n\nAt:\n" not in describe(error)


def start(descriptor: int) -> int:
    """Serve the connection with that descriptor to its end; the exit code."""
    connection = socket.socket(fileno=descriptor)
    # A program that the model starts would keep the connection open beyond this process.
    connection.set_inheritable(False)
    # Writes wait; reads say for themselves that they do not.
    connection.setblocking(True)
    session = Session(connection)
    current.start(session)
    os.register_at_fork(after_in_child=lambda: _forked(session))
    return session.serve()


def _forked(session: Session) -> None:
    # A fork of a fork has been detached from the connection already.
    if current.find() is session:
        current.stop()
        session.forked()
