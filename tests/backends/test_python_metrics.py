"""Metrics that Python models make, on the page that the server shows."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from naiad.testing import wait_until
from support.python_models import Client, client_of, write_python_model
from support.source_tree import ROOT

WITHIN_S = 20.0

# The first number of the input says what to do, the second with which value.
COUNTS = """
class TritonPythonModel:
    def initialize(self, args):
        F = pb_utils.MetricFamily
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self.requests = F("requests", "Requests,\\nas the model \\\\ counts them", F.COUNTER)
        self.counter = self.requests.Metric(labels=labels)
        self.levels = F(name="level", description="a level", kind=F.GAUGE)
        self.level = self.levels.Metric()
        self.times = F("times_s", "times", F.HISTOGRAM)
        self.time = self.times.Metric(labels=labels, buckets=[0.1, 1, 2.5])
        self.counter.increment(0.5)
        self.level.set(self.counter.value() - 1)

    def execute(self, requests):
        return [self.one(*pb_utils.get_input_tensor_by_name(r, "X").as_numpy().flat) for r in requests]

    def one(self, what, value):
        value = float(value)
        if what == 0:
            self.counter.increment(value)
        if what == 1:
            self.level.set(value)
        if what == 2:
            self.time.observe(value)
        if what == 3:
            self.level.increment(value)
        found = self.level.value() if what in (1, 3) else self.counter.value()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([[found]], np.float32))])

    def finalize(self):
        print("the counter ended at", self.counter.value(), flush=True)
"""
CRASHES = """
class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("lives", "lives", pb_utils.MetricFamily.COUNTER)
        self.metric = self.family.Metric({"instance": args["model_instance_name"]})
        self.shared = self.family.Metric({"instance": "both"})
        self.metric.increment(1)
        self.shared.increment(1)
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, 1), np.float32))]) for _ in requests]
"""
# Does what the id of the request says, and answers with the text of what that raises.
TRIES = """
class TritonPythonModel:
    def initialize(self, args):
        self.names = {"F": pb_utils.MetricFamily}
    def execute(self, requests):
        return [self.attempt(request.request_id()) for request in requests]
    def attempt(self, statement):
        try:
            exec(statement, self.names)
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, 1), np.float32))])
"""


def page(client: Client) -> str:
    """The page of metrics."""
    answer = client.server.request("GET", "/metrics", port=client.server.metrics)
    assert answer.status == 200
    return answer.body.decode()


def samples(client: Client, name: str) -> dict[str, float]:
    """The lines of the page that begin with a name: their values by what else stands before them."""
    text = page(client)
    # The official parser must understand the page.
    assert len(list(text_string_to_metric_families(text))) == text.count("# TYPE ")
    found = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(name))
    return {before.removeprefix(name): float(value) for before, value in found}


def tell(client: Client, what: float, value: float = 0) -> float:
    """Let the model ``m`` do something."""
    return float(client.infer("m", what, value)[0, 0])


def test_counters_gauges_and_histograms(tmp_path: Path) -> None:
    write_python_model(tmp_path / "r", "m", COUNTS)
    with client_of(tmp_path / "r", tmp_path / "log") as client:
        text = page(client)
        assert "# HELP requests Requests,\\nas the model \\\\ counts them\n# TYPE requests counter\n" in text
        assert '\nrequests{model="m",version="1"} 0.5\n' in text
        assert "\n# TYPE level gauge\nlevel -0.5\n" in text
        assert tell(client, 0, 2) == 2.5
        assert tell(client, 1, 7) == 7
        assert tell(client, 3, -9.25) == -2.25
        for value in (0.1, 0.5, 1e9, 0.05):
            tell(client, 2, value)
        labels = 'model="m",version="1"'
        assert samples(client, "requests") == {f"{{{labels}}}": 2.5}
        assert samples(client, "level") == {"": -2.25}
        found = samples(client, "times_s")
        assert found.pop(f"_sum{{{labels}}}") == pytest.approx(1e9 + 0.65)
        assert found == {
            f'_bucket{{{labels},le="0.1"}}': 1,
            f'_bucket{{{labels},le="1"}}': 3,
            f'_bucket{{{labels},le="2.5"}}': 3,
            f'_bucket{{{labels},le="+Inf"}}': 4,
            f"_count{{{labels}}}": 4,
        }
    assert "the counter ended at 2.5" in client.server.log


@pytest.mark.slow
def test_instances_share_a_metric(tmp_path: Path) -> None:
    write_python_model(tmp_path / "r", "m", COUNTS, count=2)
    with client_of(tmp_path / "r", tmp_path / "log") as client:
        assert len(client.children()) == 2
        # Each adds a half when it starts, and the last one to set the level wins.
        assert samples(client, "requests") == {'{model="m",version="1"}': 1}
        assert samples(client, "level") == {"": 0}
        for n in range(20):
            assert tell(client, 0, 1) == n + 2


@pytest.mark.slow
def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    write_python_model(tmp_path / "r", "m", COUNTS)
    with client_of(tmp_path / "r", tmp_path / "log") as client:
        (before,) = client.children()
        assert np.isnan(tell(client, 1, np.nan))
        assert "\nlevel NaN\n" in page(client)
        assert tell(client, 1, -np.inf) == -np.inf
        assert "\nlevel -Inf\n" in page(client)
        assert tell(client, 1, np.inf) == np.inf
        assert "\nlevel +Inf\n" in page(client)
        for value in (np.nan, np.inf):
            tell(client, 2, value)
        assert samples(client, "times_s_count") == {'{model="m",version="1"}': 2}
        assert samples(client, "times_s_bucket")['{model="m",version="1",le="2.5"}'] == 0
        with pytest.raises(InferenceServerException, match="non-negative values, found -1"):
            tell(client, 0, -1)
        assert tell(client, 0, 0) == 0.5
        assert client.children() == [before]


@pytest.mark.slow
def test_metrics_end_with_their_process_and_begin_with_the_next(tmp_path: Path) -> None:
    write_python_model(tmp_path / "r", "m", CRASHES, count=2)
    with client_of(tmp_path / "r", tmp_path / "log") as client:
        both = {'{instance="both"}': 2, '{instance="m_0_0"}': 1, '{instance="m_0_1"}': 1}
        assert samples(client, "lives") == both
        client.children()[0].send_signal(signal.SIGKILL)
        # The other instance holds the shared one meanwhile.
        after = {**both, '{instance="both"}': 3}
        wait_until(lambda: samples(client, "lives") == after, WITHIN_S, "its metrics begin anew")
        for child in client.children():
            child.send_signal(signal.SIGKILL)
        wait_until(lambda: samples(client, "lives") == both, WITHIN_S, "both begin anew")


@pytest.mark.slow
def test_metrics_of_a_model_that_fails_to_load_are_gone(tmp_path: Path) -> None:
    source = """
    class TritonPythonModel:
        def initialize(self, args):
            self.family = pb_utils.MetricFamily("left_over", "", pb_utils.MetricFamily.GAUGE)
            self.metric = self.family.Metric()
            self.metric.set(1)
            raise RuntimeError(f"the value is {self.metric.value()}")
    """
    write_python_model(tmp_path / "r", "m", source)
    with client_of(tmp_path / "r", tmp_path / "log", "--exit-on-error=false") as client:
        assert "the value is 1.0" in client.server.log
        assert "left_over" not in page(client)


@pytest.mark.slow
def test_unloading_and_loading_again(tmp_path: Path) -> None:
    folder = write_python_model(tmp_path / "r", "m", COUNTS)
    explicit = ("--model-control-mode=explicit", "--load-model=m")
    with client_of(tmp_path / "r", tmp_path / "log", *explicit) as client:
        tell(client, 0, 2)
        shown = {'{model="m",version="1"}': 2.5}
        assert samples(client, "requests") == shown
        client.grpc.unload_model("m")
        wait_until(lambda: "# TYPE requests " not in page(client), WITHIN_S, "the metrics are gone")
        client.grpc.load_model("m")
        assert samples(client, "requests") == {'{model="m",version="1"}': 0.5}
        # The next one starts while this one serves, so that it goes on where this one ends.
        (folder / "1" / "model.py").touch()
        client.grpc.load_model("m")
        wait_until(lambda: len(client.children()) == 1, WITHIN_S, "the first one is gone")
        assert samples(client, "requests") == {'{model="m",version="1"}': 1}
        assert samples(client, "level") == {"": 0}
        # What cannot be told apart from the metrics of the one that serves is refused, and that one goes on.
        model_py = folder / "1" / "model.py"
        model_py.write_text(model_py.read_text().replace("F.COUNTER", "F.GAUGE"))
        with pytest.raises(InferenceServerException, match="'requests' is a counter and cannot be a gauge"):
            client.grpc.load_model("m")
        assert tell(client, 0, 1) == 2
        client.grpc.unload_model("m")
        wait_until(lambda: "# TYPE requests " not in page(client), WITHIN_S, "the metrics are gone")
        client.grpc.load_model("m")
        assert "# TYPE requests gauge" in page(client)


def attempt(client: Client, statement: str) -> str:
    """Let the model try something; the text of the error, "" for none."""
    try:
        client.infer("m", 0, request_id=statement)
    except InferenceServerException as error:
        return str(error.message())
    return ""


REFUSED = (
    ("F('x', 'd', F.GAUGE)", "Error when creating MetricFamily: Family name already exists with different type: 'x'"),
    ("F('1x', 'd', F.GAUGE)", "Error when creating MetricFamily: Invalid metric name: '1x'"),
    ("F('nv_inference_count', 'd', 0)", "Error when creating MetricFamily: metric 'nv_inference_count' would be taken"),
    ("F('y', 'd', 7)", "Error when creating MetricFamily: the kind must be COUNTER, GAUGE or HISTOGRAM, found 7"),
    ("x.Metric({'a-b': 'c'})", "Error when creating Metric: Invalid label name: 'a-b' of metric 'x'"),
    ("x.Metric({'a': 1})", "Failed to create metric. Labels must be texts by name, found 'a': 1."),
    ("x.Metric(buckets=[1.0])", "Failed to create metric. Unexpected buckets found."),
    ("h.Metric()", "Failed to create metric. Missing required buckets."),
    ("h.Metric(buckets=[2.0, 1.0])", "Error when creating Metric: Bucket Boundaries must be strictly sorted"),
    ("h.Metric({'le': '1'}, [1.0])", "Error when creating Metric: Invalid label name: 'le' of histogram 'h'"),
)


@pytest.mark.slow
def test_what_is_refused_and_what_is_shared(tmp_path: Path) -> None:
    write_python_model(tmp_path / "r", "m", TRIES)
    with client_of(tmp_path / "r", tmp_path / "log") as client:
        assert attempt(client, "x = F('x', 'the first', F.COUNTER); h = F('h', 'd', F.HISTOGRAM)") == ""
        for statement, text in REFUSED:
            assert text in attempt(client, statement), statement
        assert "# HELP x " not in page(client), "no metric was made"
        # The same labels are the same metric, and the first description stays.
        assert (
            attempt(client, "one = x.Metric({'a': '1', 'b': '2'}); assert one is x.Metric({'b': '2', 'a': '1'})") == ""
        )
        assert (
            attempt(client, "again = F('x', 'the second', F.COUNTER); two = again.Metric({'b': '2', 'a': '1'})") == ""
        )
        assert attempt(client, "one.increment(3); two.increment(4); assert one.value() == two.value() == 7") == ""
        assert '# HELP x the first\n# TYPE x counter\nx{a="1",b="2"} 7\n' in page(client)
        # Each family keeps its own metrics, and the last one that goes takes the metric along.
        assert attempt(client, "del x") == ""
        assert samples(client, "x") == {'{a="1",b="2"}': 7}
        assert "has been deleted" in attempt(client, "one.increment(1)")
        assert attempt(client, "del again") == ""
        assert samples(client, "x") == {}
        assert attempt(client, "x = F('x', 'a gauge now', F.GAUGE); three = x.Metric(); three.set(-1)") == ""
        assert samples(client, "x") == {"": -1}


@pytest.mark.slow
def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "custom-metrics.md").read_text()
    source, shown = re.findall(r"```(?:python|text)\n(.*?)```", text, re.S)
    tensors = """
    input [ { name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] } ]
    output [ { name: "COUNT" data_type: TYPE_INT64 dims: [ 1 ] } ]
    """
    write_python_model(tmp_path / "r", "words", source, more="", tensors=tensors)
    with client_of(tmp_path / "r", tmp_path / "log") as client:
        tensor = {"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": ["one two", "three"]}
        answer = client.server.infer("words", {"inputs": [tensor]})
        assert answer.json()["outputs"][0]["data"] == [3]
        assert "".join(shown.splitlines(True)[:3]) in page(client)
        # How long it took is not the same every time.
        assert [line.rsplit(" ", 1)[0] for line in shown.splitlines()[3:]] == [
            line.rsplit(" ", 1)[0] for line in page(client).splitlines() if "cutting_seconds" in line
        ]


@pytest.mark.slow
def test_a_model_cannot_make_metrics_without_end(tmp_path: Path) -> None:
    write_python_model(tmp_path / "r", "m", TRIES)
    with client_of(tmp_path / "r", tmp_path / "log") as client:
        assert attempt(client, "x = F('x', 'd', F.COUNTER)") == ""
        # The same one again and again costs nothing.
        assert attempt(client, "for n in range(11_000): x.Metric().increment(1)") == ""
        assert samples(client, "x") == {"": 11_000}
        text = attempt(client, "for n in range(11_000): x.Metric({'id': str(n)})")
        assert "Error when creating Metric: a metric of family 'x' is one too many: those of a model's process" in text
        assert len(samples(client, "x")) == 10_000
        assert attempt(client, "F('y', 'd', F.COUNTER)") == ""
