"""The life of a child: loading a model, completing its configuration, readiness, ending."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.worker.ipc import frames as p
from support.worker_peer import Child, Request, bare_worker, eventually, worker_of, write_execute, write_model

ONE = Request({"IN": np.array([1], np.int32)})
DONE = "return [pb_utils.InferenceResponse([])]"


@pytest.fixture
def child() -> Iterator[Child]:
    with bare_worker() as made:
        yield made


def test_initialize_gets_its_arguments(tmp_path: Path) -> None:
    source = """
    class TritonPythonModel:
        def initialize(self, args):
            self.args = args
        def execute(self, requests):
            out = np.array([json.dumps(self.args, sort_keys=True)], dtype=object)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]
    """
    with worker_of(write_model(tmp_path, source), model_instance_device_id="3") as child:
        seen = json.loads(child.run([ONE])[0].outputs["OUT"][0])
        assert seen == {
            "model_config": "{}",
            "model_instance_kind": "CPU",
            "model_instance_device_id": "3",
            "model_instance_name": "m_0_0",
            "model_repository": str(tmp_path / "m"),
            "model_version": "1",
            "model_name": "m",
        }


def test_ready_says_what_the_server_wants_to_know(tmp_path: Path, child: Child) -> None:
    answer = child.start(write_execute(tmp_path, DONE))
    assert answer.kind == p.READY
    found = answer.json
    assert re.fullmatch(r"3\.\d+\.\d+", found.pop("python"))
    assert found == {"is_ready": False, "pid": child.process.pid}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:\n    pass\n", "SyntaxError: "),
        (
            "import no_such_package\n",
            "ModuleNotFoundError: No module named 'no_such_package'\n\nAt:\n  {model}(1): <module>\n",
        ),
        (
            "x = 1\n",
            "AttributeError: module '1.model' has no attribute 'TritonPythonModel': {model} has to define this class",
        ),
        (
            "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('init refused')\n",
            "ValueError: init refused\n\nAt:\n  {model}(3): initialize\n",
        ),
        (
            "class TritonPythonModel:\n    def __init__(self):\n        raise SystemExit('gone')\n",
            "SystemExit: gone\n\nAt:\n  {model}(3): __init__\n",
        ),
    ],
)
def test_a_model_that_does_not_load(tmp_path: Path, child: Child, source: str, message: str) -> None:
    model = write_model(tmp_path, source, head="")
    answer = child.start(model)
    assert answer.kind == p.FAILED
    assert answer.json["message"].startswith(message.format(model=model))
    trace = answer.json["traceback"]
    assert (f'File "{model}", line ' in trace) == ("At:" in message or "SyntaxError" in message)
    assert "session.py" not in trace and "importlib" not in trace
    assert child.process.wait(20) == 1


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "1" / "model.py", f"Python model file not found in '{tmp_path / '1' / 'model.py'}'"),
        (tmp_path / "1" / "model.so", "Model name must end with '.py'. Model name is \"model.so\"."),
    ):
        with bare_worker() as child:
            assert child.start(path).json["message"] == message


def test_a_model_finds_its_neighbours(tmp_path: Path) -> None:
    model = write_model(tmp_path, "from .near import A\nimport beside, above\nclass TritonPythonModel:\n    pass\n")
    (model.parent / "near.py").write_text("A = 1\n")
    (model.parent / "beside.py").write_text("B = 1\n")
    (model.parent.parent / "above.py").write_text("C = 1\n")
    with worker_of(model):
        pass


def test_names_of_this_side_do_not_hide_packages(tmp_path: Path) -> None:
    source = """
    import importlib.util
    for name in ("requests", "responses", "channel", "session", "errors", "protocol", "tensors"):
        spec = importlib.util.find_spec(name)
        assert spec is None or "naiad" not in spec.origin, spec
    class TritonPythonModel:
        pass
    """
    with worker_of(write_model(tmp_path, source)):
        pass


def test_the_interface_has_several_names(tmp_path: Path) -> None:
    source = """
    import naiad.python_backend, pickle
    from naiad import python_backend
    import c_python_backend_utils as c_utils
    assert naiad.python_backend is pb_utils is python_backend is c_utils
    assert pickle.loads(pickle.dumps(pb_utils.TritonModelException("x"))).args == ("x",)
    assert pb_utils.Tensor.__module__ == "triton_python_backend_utils"
    class TritonPythonModel:
        pass
    """
    with worker_of(write_model(tmp_path, source)):
        pass


def test_a_model_in_a_backend_folder(tmp_path: Path, child: Child) -> None:
    folder = tmp_path / "backends" / "mine"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("class TritonPythonModel:\n    name = __name__\n")
    assert child.start(folder / "model.py", model_version="1").kind == p.READY


# Completing the configuration

COMPLETE = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(c):
        {body}
"""


def complete(child: Child, model: Path, **config: Any) -> Any:
    return child.start(model, mode="complete", config={"name": "m", "max_batch_size": 0, **config})


def test_a_configuration_is_completed(tmp_path: Path, child: Child) -> None:
    source = COMPLETE.format(body="c.set_max_batch_size(4); c.set_dynamic_batching(); return c")
    answer = complete(child, write_model(tmp_path, source))
    assert answer.kind == p.CONFIG
    assert answer.json == {"config": {"name": "m", "max_batch_size": 4, "dynamic_batching": {}}}
    assert child.process.wait(20) == 0


def test_a_model_that_completes_nothing(tmp_path: Path, child: Child) -> None:
    answer = complete(child, write_execute(tmp_path, DONE))
    assert answer.json == {"config": {"name": "m", "max_batch_size": 0}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."),
        (
            "c.set_max_batch_size(-1)",
            "ValueError: configuration specified max_batch_size 0, but in auto-complete-config",
        ),
        ("raise RuntimeError('x')", "RuntimeError: x\n\nAt:\n  {model}(9): auto_complete_config\n"),
        ("pb_utils.load_model('x')", "TritonModelException: "),
    ],
)
def test_completing_that_fails(tmp_path: Path, child: Child, body: str, message: str) -> None:
    model = write_model(tmp_path, COMPLETE.format(body=body))
    answer = complete(child, model)
    if answer.kind == p.CONTROL_REQUEST:
        child.send_json(p.REPLY, answer.number, {"error": {"message": "not now", "code": 14}})
        answer = child.receive()
    assert answer.kind == p.FAILED
    assert answer.json["message"].startswith(message.format(model=model))
    assert child.process.wait(20) == 1


# Readiness

READY = """
class TritonPythonModel:
    {kind}def is_ready(self):
        {body}
    def execute(self, requests):
        time.sleep(0.6)
        return [pb_utils.InferenceResponse([])]
"""


@pytest.mark.parametrize(
    ("kind", "body", "answer"),
    [
        ("", "return True", {"ready": True}),
        ("", "return False", {"ready": False}),
        ("async ", "import asyncio; await asyncio.sleep(0.01); return True", {"ready": True}),
        ("", "return 1", {"error": "is_ready() must return a boolean value"}),
        ("", "raise RuntimeError('x')", {"error": "RuntimeError: x\n\nAt:\n  {model}(8): is_ready\n"}),
        ("async ", "raise RuntimeError('x')", {"error": "RuntimeError: x\n\nAt:\n  {model}(8): is_ready\n"}),
    ],
)
def test_readiness(tmp_path: Path, kind: str, body: str, answer: Any) -> None:
    model = write_model(tmp_path, READY.format(kind=kind, body=body))
    expected = {k: v.format(model=model) if isinstance(v, str) else v for k, v in answer.items()}
    with worker_of(model) as child:
        for number in (1, 2):
            child.send(p.CHECK_READY, number)
            frame = child.expect(p.IS_READY)
            assert (frame.number, frame.json) == (number, expected)


@pytest.mark.slow
def test_readiness_beside_execute_and_one_check_at_a_time(tmp_path: Path) -> None:
    may_end = tmp_path / "may_end"
    body = f"import os\n        while not os.path.exists({str(may_end)!r}): time.sleep(0.01)\n        return True"
    with worker_of(write_model(tmp_path, READY.format(kind="", body=body))) as child:
        child.send(p.CHECK_READY, 1)
        child.send(p.CHECK_READY, 2)
        child.execute(1, [ONE])
        child.expect(p.RESPONSES)
        may_end.touch()
        assert child.expect(p.IS_READY).number == 1
        child.send(p.PING, 9)
        assert child.expect(p.PONG).number == 9
        child.send(p.CHECK_READY, 3)
        assert child.expect(p.IS_READY).number == 3


def test_a_check_that_takes_too_long(tmp_path: Path) -> None:
    source = "import naiad_worker.runtime.readiness\nnaiad_worker.runtime.readiness.LIMIT_S = 0.05\n"
    model = write_model(tmp_path, source + READY.format(kind="", body="time.sleep(60)"))
    with worker_of(model) as child:
        child.send(p.CHECK_READY, 1)
        assert "gave no answer within 0.05 s" in child.expect(p.IS_READY).json["error"]


# The end

FINALIZE = """
class TritonPythonModel:
    def initialize(self, args):
        print("hello from the model")
        self.path = os.path.join(pb_utils.get_model_dir(), "finalized")
    def execute(self, requests):
        if requests[0].request_id() == "die":
            import ctypes
            ctypes.string_at(0)
        if requests[0].request_id() == "exit":
            os._exit(7)
        time.sleep(3600 if requests[0].request_id() == "sleep" else 0)
        return [pb_utils.InferenceResponse([])]
    def finalize(self):
        open(self.path, "w").close()
"""


def test_finalize(tmp_path: Path) -> None:
    model = write_model(tmp_path, FINALIZE)
    with worker_of(model) as child:
        child.run([ONE])
        assert child.finish() == 0
        assert (model.parent / "finalized").exists()
        assert child.said() == "hello from the model\n"


def test_finalize_that_fails(tmp_path: Path) -> None:
    source = "class TritonPythonModel:\n    def finalize(self):\n        raise RuntimeError('at the end')\n"
    with worker_of(write_model(tmp_path, source)) as child:
        child.send(p.FINALIZE)
        line = child.expect(p.LOG).json
        assert line["level"] == "ERROR"
        assert "finalize() of model instance 'm_0_0' failed: RuntimeError: at the end" in line["message"]
        assert child.process.wait(20) == 0


def test_the_end_of_the_connection_finalizes_an_idle_model(tmp_path: Path) -> None:
    model = write_model(tmp_path, FINALIZE)
    with worker_of(model) as child:
        child.connection.close()
        assert child.process.wait(20) == 1
        assert (model.parent / "finalized").exists()


def test_the_end_of_the_connection_ends_a_busy_process(tmp_path: Path) -> None:
    with worker_of(write_model(tmp_path, FINALIZE)) as child:
        child.execute(1, [Request({"IN": np.zeros(1)}, id="sleep")])
        child.send(p.PING, 1)
        child.expect(p.PONG)
        child.connection.close()
        assert child.process.wait(5) == 1


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", p.FRAME.pack(p.FINALIZE, 0, 0)], ids=["killed", "stopped, then killed"])
def test_threads_of_the_model_do_not_outlive_the_server(tmp_path: Path, said: bytes) -> None:
    source = """
    class TritonPythonModel:
        def initialize(self, args):
            threading.Thread(target=time.sleep, args=[60]).start()

        def execute(self, requests):
            return []

        def finalize(self):
            os.write(1, b"finalized\\n")
    """
    with worker_of(write_model(tmp_path, source)) as child:
        child.connection.sendall(said)
        if said:
            assert child.process.stdout is not None
            assert child.process.stdout.readline() == b"finalized\n"
        child.connection.close()
        assert child.process.wait(15) == 1


def test_a_frame_that_cannot_be_taken_ends_the_process(tmp_path: Path) -> None:
    """Even when it is a thread of the model that reads, and the model goes on after any error."""
    body = """
    while True:
        try:
            requests[0].is_cancelled()
        except BaseException:
            continue
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [ONE])
        # The descriptor does not come along.
        child.send(p.SEGMENT, 1, (1 << 16).to_bytes(8, "little"))
        assert child.process.wait(10) == 1
        assert "IndexError" in child.said()


def test_the_end_of_the_connection_before_anything_was_said(child: Child) -> None:
    child.connection.close()
    assert child.process.wait(20) == 1
    assert child.said() == ""


@pytest.mark.parametrize(("how", "code"), [("die", -signal.SIGSEGV), ("exit", 7)])
def test_a_process_that_dies_is_seen_at_once(tmp_path: Path, how: str, code: int) -> None:
    with worker_of(write_model(tmp_path, FINALIZE)) as child:
        child.execute(1, [Request({"IN": np.zeros(1)}, id=how)])
        with pytest.raises(EOFError, match="hello from the model"):
            child.receive()
        assert child.process.wait(20) == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_for_the_whole_terminal_are_left_to_the_server(tmp_path: Path, number: signal.Signals) -> None:
    body = f"os.kill(os.getpid(), {int(number)})\n{DONE}"
    with worker_of(write_execute(tmp_path, body)) as child:
        assert child.run([ONE])[0].error == ""
        child.process.send_signal(number)
        assert child.run([ONE])[0].error == ""


def test_programs_and_forks_of_the_model_do_not_hold_the_connection(tmp_path: Path) -> None:
    body = """
    import subprocess
    self.program = subprocess.Popen(["sleep", "60"])
    fork = os.fork()
    if not fork:
        pb_utils.Logger.log_info("from the fork")
        del requests
        time.sleep(60)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([fork, self.program.pid]))])]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        others = child.run([ONE])[0].outputs["OUT"].tolist()
        try:
            child.process.kill()
            assert child.connection.recv(1) == b""
        finally:
            for pid in others:
                os.kill(pid, signal.SIGKILL)


def test_a_reader_that_is_slow(tmp_path: Path) -> None:
    """The child waits while the socket is full, and nothing is lost."""
    body = """
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(3000, i))]) for i, r in enumerate(requests)]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        for batch in (1, 2):
            child.execute(batch, [ONE] * 300)
        for batch in (1, 2):
            frame = child.expect(p.RESPONSES)
            assert frame.number == batch
            for i, response in enumerate(child.responses(frame)):
                assert (response.outputs["OUT"] == i).all()


@pytest.mark.slow
def test_an_idle_child_rests(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, DONE)) as child:
        child.run([ONE])
        # What the first request sets off, such as imports, is no part of the rest.
        begun = elapsed(child) + 1.0
        eventually(lambda: elapsed(child) > begun, "time passes")
        before = processor_seconds(child)
        eventually(lambda: elapsed(child) > begun + 1.0, "time passes")
        assert processor_seconds(child) - before < 0.05


def processor_seconds(child: Child) -> float:
    fields = Path(f"/proc/{child.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def elapsed(child: Child) -> float:
    """Seconds since the child's process began."""
    fields = Path(f"/proc/{child.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - int(fields[19]) / os.sysconf("SC_CLK_TCK")
