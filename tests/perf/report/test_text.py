"""The text report. Its layout was taken from what the reference's perf_analyzer 2.51 printed for the same loads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from naiad.perf.report.figures import six_digits
from naiad.perf.report.text import level_text, report_text, settings_text
from naiad.perf.results import ClientUsage, LevelResult, LoadMode, Report, Usage
from naiad.perf.settings import (
    InputSettings,
    LoadPlan,
    MeasureSettings,
    OutputSettings,
    PerfSettings,
    Range,
    TargetSettings,
)
from support.perf_reports import histogram, level, parts, report, window

LATENCIES = [200 + number for number in range(100)]


def golden(name: str) -> str:
    """Text that has the reference's lines, with the blanks at their ends."""
    return (Path(__file__).parent / "golden" / f"{name}.txt").read_text()


def shown(result: LevelResult, settings: PerfSettings | None = None, **of_report: object) -> str:
    """One level's blocks without the findings, which are Naiad's own."""
    text = level_text(result, report(result, **of_report), settings or PerfSettings())
    before, found, after = text.partition("  Findings:\n")
    return before + (after.partition("\n\n")[2] if found else "")


def findings(result: LevelResult, verbose: int = 0) -> list[str]:
    text = level_text(result, report(result), PerfSettings(output=OutputSettings(verbose=verbose)))
    return [line[4:] for line in text.partition("  Findings:\n")[2].partition("\n\n")[0].splitlines()]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (4141.756, "4141.76"),
        (118, "118"),
        (62.6, "62.6"),
        (1_200_000, "1.2e+06"),
        (123_456.7, "123457"),
        (999_999.7, "1e+06"),
        (0.000012345678, "1.23457e-05"),
        (0, "0"),
        (229.91, "229.91"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_are_printed_as_cpp_streams_print_them(number: float, text: str) -> None:
    assert six_digits(number) == text


def test_a_whole_report() -> None:
    found = report(level(1, window(LATENCIES, server=parts())), level(2, window(LATENCIES, 1, server=parts())))
    settings = PerfSettings(load=LoadPlan(levels=Range(1, 2, 1, True)), measure=MeasureSettings(percentile=95))
    assert report_text(found, settings) == golden("whole")


SETTINGS = {
    "plain": (
        PerfSettings(),
        False,
        'Using "time_windows" mode for stabilization|Stabilizing using average latency and throughput|'
        "Measurement window: 5000 msec|Using synchronous calls for inference",
    ),
    "rates": (
        PerfSettings(
            load=LoadPlan(LoadMode.REQUEST_RATE, Range(50.5, 51, 0.5, True), "poisson", latency_limit_ms=9),
            measure=MeasureSettings(interval_ms=500, percentile=99),
        ),
        True,
        'Using "time_windows" mode for stabilization|Stabilizing using p99throughput|Measurement window: 500 msec|'
        "Latency limit: 9 msec|Request Rate limit: 51 requests per seconds|"
        "Using poisson distribution on request generation|Using asynchronous calls for inference",
    ),
    "one rate": (
        PerfSettings(load=LoadPlan(LoadMode.REQUEST_RATE, Range(50, 1, 1))),
        False,
        'Using "time_windows" mode for stabilization|Stabilizing using average latency and throughput|'
        "Measurement window: 5000 msec|Using uniform distribution on request generation|"
        "Using synchronous calls for inference",
    ),
    "one level, both ends": (
        PerfSettings(load=LoadPlan(levels=Range(4, 4, 1, True), latency_limit_ms=100)),
        False,
        'Using "time_windows" mode for stabilization|Stabilizing using average latency and throughput|'
        "Measurement window: 5000 msec|Latency limit: 100 msec|Concurrency limit: 4 concurrent requests|"
        "Using synchronous calls for inference",
    ),
    "counts and a search": (
        PerfSettings(
            load=LoadPlan(levels=Range(1, 20, 4, True), binary_search=True, latency_limit_ms=9),
            measure=MeasureSettings(mode="count_windows", request_count=200),
        ),
        False,
        'Using "count_windows" mode for stabilization|Stabilizing using average latency and throughput|'
        "Minimum number of samples in each window: 200|Latency limit: 9 msec|"
        "Concurrency limit: 20 concurrent requests|Using Binary Search algorithm|"
        "Using synchronous calls for inference",
    ),
    "a number of requests": (
        PerfSettings(measure=MeasureSettings(total_requests=300)),
        False,
        "Sending 300 benchmark requests|Using synchronous calls for inference",
    ),
    "one request, after others that do not count": (
        PerfSettings(measure=MeasureSettings(total_requests=1, warmup_requests=5)),
        False,
        "Sending 5 warmup requests|Sending 1 benchmark request|Using synchronous calls for inference",
    ),
    "custom intervals": (
        PerfSettings(load=LoadPlan(LoadMode.CUSTOM_INTERVALS)),
        False,
        'Using "time_windows" mode for stabilization|Stabilizing using average latency and throughput|'
        "Measurement window: 5000 msec|Using synchronous calls for inference",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str) -> None:
    settings, is_async, lines = SETTINGS[name]
    title, *found, last = settings_text(settings, is_async=is_async).split("\n")
    assert title == "*** Measurement Settings ***"
    assert [line.removeprefix("  ") for line in found] == [
        "Batch size: 1",
        "Service Kind: TRITON",
        *lines.split("|"),
        "",
    ]
    assert last == ""


def test_settings_name_the_batch_and_the_service() -> None:
    batch = InputSettings(batch_size=8)
    settings = PerfSettings(TargetSettings(service_kind="tfserving"), batch, given=frozenset("b"))
    text = settings_text(settings, is_async=True, is_decoupled=True)
    assert "  Batch size: 8\n  Service Kind: TENSORFLOW_SERVING\n" in text
    assert text.endswith("  Detected decoupled model, using the last response for measuring latency\n\n")


def test_settings_of_other_services_name_no_batch_that_was_not_given() -> None:
    text = settings_text(PerfSettings(TargetSettings(service_kind="openai")), is_async=True)
    assert text.startswith("*** Measurement Settings ***\n  Service Kind: OPENAI\n")


def test_an_average_over_grpc() -> None:
    assert shown(level(1, window(LATENCIES)), protocol="grpc") == golden("grpc_average")


@pytest.mark.parametrize(
    ("protocol", "line"),
    [
        ("http", "Avg HTTP time: 249 usec (send 20 usec + response wait 224 usec + receive 5 usec)"),
        ("grpc", "Avg gRPC time: 249 usec (marshal 20 usec + response wait 224 usec + unmarshal 5 usec)"),
    ],
)
def test_verbose_names_every_part_of_the_exchange(protocol: str, line: str) -> None:
    busy = window(LATENCIES, client=ClientUsage(cpu_cores=0.05, cores=2))
    text = shown(level(1, busy), PerfSettings(output=OutputSettings(verbose=1)), protocol=protocol)
    assert "    Throughput: 50 infer/sec\n    Avg client overhead: 2.50%\n" in text
    assert f"    {line}\n" in text


def test_an_asked_percentile_stands_among_the_others() -> None:
    settings = PerfSettings(measure=MeasureSettings(percentile=77))
    text = shown(level(1, window(LATENCIES)), settings)
    assert "p50 latency: 250 usec\n    p77 latency: 276 usec\n    p90 latency: 288 usec\n" in text
    assert "Avg latency" not in text
    closing = report_text(report(level(1, window(LATENCIES))), settings).splitlines()[-2:]
    assert closing == [
        "Inferences/Second vs. Client p77 Batch Latency",
        "Concurrency: 1, throughput: 50 infer/sec, latency 276 usec",
    ]


def test_batches_count_as_so_many_inferences() -> None:
    text = shown(level(1, window(LATENCIES), batch_size=8))
    assert "Request count: 100\n    Throughput: 400 infer/sec\n" in text


def test_a_window_in_which_no_sequence_ended() -> None:
    found = report(level(8, window(LATENCIES, 3.0)), is_sequence=True)
    assert "    Sequence count: 0 (0 seq/sec)\n    Throughput: " in report_text(found, PerfSettings())


def test_sequences_and_late_requests() -> None:
    late = window(LATENCIES, 3.0, sequences=20, sent=101, delayed=30)
    text = shown(level(1000, late, LoadMode.REQUEST_RATE))
    assert text.startswith(golden("late_requests"))


def test_the_rate_of_sends_is_that_of_requests() -> None:
    text = shown(level(100, window(LATENCIES, 2, sent=100, delayed=30), LoadMode.REQUEST_RATE, batch_size=8))
    assert "    Avg send request rate: 50.00 infer/sec\n" in text
    assert "    Throughput: 400 infer/sec\n" in text


def test_one_late_request_of_a_hundred_is_no_warning() -> None:
    assert "WARNING" not in shown(level(1000, window(LATENCIES, delayed=1), LoadMode.REQUEST_RATE))


def test_responses_of_a_decoupled_model() -> None:
    text = shown(level(1, window(LATENCIES, responses=300)), is_decoupled=True)
    assert "    Throughput: 50 infer/sec\n    Response Throughput: 150 infer/sec\n" in text


def test_pass_lines() -> None:
    passes = [window(LATENCIES), window([number * 2 for number in LATENCIES], 3)]
    found = report(level(2, passes[0], windows=passes))
    verbose = OutputSettings(verbose=1)
    average = report_text(found, PerfSettings(output=verbose))
    assert (
        "Request concurrency: 2\n"
        "  Pass [1] throughput: 50 infer/sec. Avg latency: 249 usec (std 29 usec). \n"
        "  Pass [2] throughput: 33.3333 infer/sec. Avg latency: 499 usec (std 58 usec). \n"
        "  Client: \n" in average
    )
    percentile = report_text(found, PerfSettings(output=verbose, measure=MeasureSettings(percentile=90)))
    assert "  Pass [1] throughput: 50 infer/sec. p90 latency: 288 usec\n" in percentile


def test_rates_have_their_own_heading_and_custom_intervals_have_none() -> None:
    rates = report_text(report(level(50.5, window(LATENCIES), LoadMode.REQUEST_RATE)), PerfSettings())
    assert "\nRequest Rate: 50.5 inference requests per seconds\n  Client: \n" in rates
    assert rates.endswith("\nRequest Rate: 50.5, throughput: 50 infer/sec, latency 249 usec\n")
    custom = report_text(report(level(300, window(LATENCIES), LoadMode.CUSTOM_INTERVALS)), PerfSettings())
    assert "calls for inference\n\n  Client: \n" in custom
    assert custom.endswith("\nRequest Rate: 300, throughput: 50 infer/sec, latency 249 usec\n")


def test_a_cache() -> None:
    cached = parts(
        requests=1000,
        executions=1,
        request=12,
        queue=8,
        given=0,
        infer=0,
        output=0,
        more={
            "inferences": 1,
            "cache_hits": 999,
            "cache_misses": 1,
            "cache_hit_ns": 999 * 3_000,
            "cache_miss_ns": 142_000,
            "compute_input_ns": 61_000,
            "compute_infer_ns": 5_000,
            "compute_output_ns": 5_000,
        },
    )
    assert shown(level(1, window(LATENCIES, server=cached))).partition("  Server: ")[2] == golden("cache")


def test_an_ensemble_of_ensembles() -> None:
    inner = parts("chained", request=40, infer=0, more={"composing": [parts("b"), parts("a")]})
    outer = parts("nested", request=400, more={"composing": [inner, parts("b", 200)]})
    step = "{0}Inference count: {1}\n{0}Execution count: {1}\n{0}Successful request count: {1}\n{0}"
    step += "Avg request latency: 100 usec (overhead 10 usec + queue 30 usec + compute input 4 usec"
    step += " + compute infer 50 usec + compute output 6 usec)\n\n"
    assert shown(level(1, window(LATENCIES, server=outer))).partition("  Server: \n")[2] == (
        "    Inference count: 100\n    Execution count: 100\n    Successful request count: 100\n"
        "    Avg request latency: 400 usec (overhead 130 usec + queue 90 usec + compute 180 usec)\n\n"
        "  Composing models: \n"
        "  b, version: 1\n" + step.format("      ", 200) + "  chained, version: 1\n"
        "      Inference count: 100\n      Execution count: 100\n      Successful request count: 100\n"
        "      Avg request latency: 40 usec (overhead 0 usec + queue 60 usec + compute 120 usec)\n\n"
        "    Composing models: \n"
        "    a, version: 1\n" + step.format("        ", 100) + "    b, version: 1\n" + step.format("        ", 100)
    )


def test_a_cache_in_a_step_of_an_ensemble() -> None:
    hits = {"cache_hits": 100, "cache_hit_ns": 400_000, "inferences": 0, "executions": 0}
    cached = parts("cached", request=6, queue=2, given=0, infer=0, output=0, more=hits)
    plain = parts("a", request=4, queue=1, given=0, infer=2, output=0)
    ensemble = parts("both", request=52, more={"composing": [plain, cached]})
    text = shown(level(1, window(LATENCIES, server=ensemble)))
    assert golden("cached_step") in text


def test_gpus() -> None:
    usage = Usage(
        gpu_utilization={"GPU-b": 0.5},
        gpu_power_watts={"GPU-a": 71.25, "GPU-b": 20},
        gpu_memory_used_bytes={"GPU-a": 1234567890},
        gpu_memory_total_bytes={"GPU-a": 17071734784},
    )
    assert shown(level(1, window(LATENCIES, usage=usage))).endswith(golden("gpus"))


def test_a_level_over_the_limit_is_named_but_not_listed() -> None:
    found = report(level(1, window(LATENCIES)), level(5, window(LATENCIES, 1), is_within_limit=False))
    text = report_text(found, PerfSettings(load=LoadPlan(latency_limit_ms=9)))
    assert "Request concurrency: 5\n  Measured latency went over the set limit of 9 msec. \n" in text
    assert "    Found: 100 inferences a second, average 249 usec, p95 294 usec\n\n" in text
    assert "Concurrency: 5, throughput" not in text


# What Naiad adds


def test_nothing_measured() -> None:
    failed = window([], errors=Counter({("connection lost", "the server closed\nthe connection"): 7}))
    text = report_text(report(level(1, failed)), PerfSettings(output=OutputSettings(verbose=2)))
    assert "    Request count: 0\n    Throughput: 0 infer/sec\n    Avg client overhead: 0.00%\n\n" in text
    assert (
        "    Errors: 7 of 7 requests (100.00%)\n      7 x connection lost: the server closed the connection\n" in text
    )
    assert text.endswith("Inferences/Second vs. Client Average Batch Latency\n")
    assert report_text(Report(), PerfSettings()).endswith(
        "inference\n\nInferences/Second vs. Client Average Batch Latency\n"
    )


def test_errors_by_kind_most_frequent_first() -> None:
    errors = Counter({("HTTP 400", "wrong shape"): 2, ("HTTP 503", ""): 48})
    assert findings(level(1, window(LATENCIES, errors=errors)))[-3:] == [
        "Errors: 50 of 150 requests (33.33%)",
        "  48 x HTTP 503",
        "  2 x HTTP 400: wrong shape",
    ]


def test_what_the_server_and_the_client_used() -> None:
    usage = Usage("pid 77", 1.5, 212.4, 191_000_000)
    client = ClientUsage(0.97, 1, 24.25, histogram([10, 2000]), is_bottleneck=True, waited_cores=0.25)
    assert findings(level(1, window(LATENCIES, usage=usage, client=client))) == [
        "Server CPU: 1.50 cores, 212.4 usec per request, memory 182.2 MiB (from pid 77)",
        "Client CPU: 0.97 of 1 core, 24.2 usec per request; events waited for it p99 2000 usec",
        "The client waited for a processor: 0.25 cores' worth went to other programs",
        "The client is the bottleneck: these figures are its limit, not the server's; --client-workers",
    ]
    assert findings(level(1, window(LATENCIES, usage=Usage(rss_bytes=900)))) == ["Server memory: 900 bytes"]


def test_an_unstable_level_is_reported_with_its_reason() -> None:
    found = level(4, window(LATENCIES), unstable_reason="the rate varies by 22%, 10% is allowed")
    assert findings(found) == ["unstable: the rate varies by 22%, 10% is allowed"]
    text = report_text(report(found), PerfSettings())
    assert "  Unstable: Concurrency: 4; " in text
    assert text.endswith("Concurrency: 4, throughput: 50 infer/sec, latency 249 usec\n")


def test_the_tail_says_when_it_rests_on_few_requests() -> None:
    assert findings(level(1, window(LATENCIES)), verbose=1) == [
        "Tail: p99.9 298, p99.99 298, most 299 usec (only 100 requests)"
    ]
    many = [100.0] * 19_996 + [5000.0] * 4
    assert findings(level(1, window(many)), verbose=1) == ["Tail: p99.9 100, p99.99 4999, most 5000 usec"]


def test_delays_behind_the_schedule_and_streams() -> None:
    late = window(
        LATENCIES,
        sent=101,
        delayed=1,
        send_delay=histogram([10] * 100 + [3000]),
        first_response=histogram([50, 60]),
        between_responses=histogram([7]),
    )
    assert findings(level(100, late, LoadMode.REQUEST_RATE)) == [
        "Schedule: 1 of 101 requests late; sends behind it p50 10, p99 10, most 3000 usec",
        "First response: average 55, p50 60, p95 60, p99 60 usec",
        "Between responses: average 7, p50 7, p95 7, p99 7 usec",
    ]


@pytest.mark.parametrize(
    ("server", "start"),
    [
        (parts(request=200, queue=150, infer=40), "Largest part: queue, 150 of 249 usec (60%)"),
        (parts(request=200, queue=5, infer=180), "Largest part: compute, 190 of 249 usec (76%)"),
        (parts(request=200, queue=5, infer=5), "Largest part: server overhead, 180 of 249 usec (72%)"),
        (parts(request=20, queue=5, infer=5), "Largest part: network, 204 of 249 usec (82%)"),
    ],
)
def test_the_largest_part_of_the_latency(server: object, start: str) -> None:
    part, remedy = findings(level(1, window(LATENCIES, server=server)))
    assert part == start
    assert remedy.startswith("  Usual remedy: ")


def test_a_model_in_this_process_waits_for_no_network() -> None:
    client = ClientUsage(serves=True)
    part, remedy = findings(level(1, window(LATENCIES, server=parts(request=20, queue=5, infer=5), client=client)))
    assert part == "Largest part: event loop, 204 of 249 usec (82%)"
    assert "take turns on one event loop" in remedy


def test_what_the_client_itself_needs() -> None:
    quick = parts(request=50, queue=10, infer=10)
    slow = window(LATENCIES, send_ns=15_000_000, wait_ns=5_000_000, server=quick)
    assert findings(level(1, slow))[0] == "Largest part: client, 155 of 249 usec (62%)"
    late = window(
        [number * 10 for number in LATENCIES], wait_ns=5_000_000, server=parts(request=50, queue=10, infer=10)
    )
    assert findings(level(1, late))[0] == "Largest part: schedule, 2420 of 2495 usec (97%)"


def batched(value: float, rows: int, infer: float) -> LevelResult:
    return level(value, window(LATENCIES, server=parts(executions=100 // rows, infer=infer)))


@pytest.mark.parametrize(
    ("levels", "line"),
    [
        (
            [batched(1, 1, 50), batched(16, 10, 100)],
            "Batching: gains: from 1.0 inferences per execution (Concurrency: 1) to 10.0 (Concurrency: 16)"
            " the model does 5.00 times the inferences a second of compute",
        ),
        (
            [batched(1, 1, 50), batched(16, 10, 500)],
            "Batching: gains nothing here: from 1.0 inferences per execution (Concurrency: 1) to 10.0"
            " (Concurrency: 16) the model does 1.00 times the inferences a second",
        ),
        (
            [batched(8, 10, 50), batched(16, 10, 50)],
            "Batching: 10.0 inferences per execution; a level with smaller batches would show the gain",
        ),
    ],
)
def test_whether_batching_gained(levels: list[LevelResult], line: str) -> None:
    assert f"  {line}\n" in report_text(report(*levels), PerfSettings())


def working(value: float, rate: float, infer: float, rows: int = 1) -> LevelResult:
    """A level of 10 s whose executions took ``infer`` microseconds each, for so many requests a second."""
    requests = int(rate * 10)
    server = parts(requests=requests, executions=requests // rows, given=0, infer=infer, output=0)
    return level(value, window([infer] * requests, 10, server=server))


@pytest.mark.parametrize(
    ("levels", "instances", "line"),
    [
        (
            [working(1, 90, 10_000), working(4, 190, 10_400)],
            2,
            "Instances: a second instance gains: 1.90 times the inferences of one: an execution takes 10.0 ms alone"
            " (Concurrency: 1), and 10.4 ms with 2.0 at a time (Concurrency: 4)",
        ),
        (
            [working(1, 90, 10_000), working(4, 100, 19_900)],
            2,
            "Instances: a second instance gains nothing here: an execution takes 10.0 ms alone (Concurrency: 1), and"
            " 19.9 ms with 2.0 at a time (Concurrency: 4)",
        ),
        (
            [working(1, 90, 10_000), working(8, 380, 10_000)],
            4,
            "Instances: 4 instances gain: 3.80 times the inferences",
        ),
        ([working(1, 90, 10_000)], 2, "Instances: 2, of which 0.9 were busy at most, on average; more in flight would"),
        ([working(4, 190, 10_000)], 2, "Instances: 2; a level with one request in flight would show what they gain"),
        (
            [working(1, 90, 10_000), working(64, 800, 10_000, rows=4)],
            2,
            "Instances: 2; their batches differ from level to level, so these figures cannot tell what they gain: naiad"
            " perf advise tries it",
        ),
        (
            [working(1, 50, 10_000), working(4, 99, 10_000)],
            1,
            "Instances: 1, busy for 99% of the time (Concurrency: 4); naiad perf advise tries a second one",
        ),
    ],
)
def test_what_instances_gained(levels: list[LevelResult], instances: int, line: str) -> None:
    assert f"  {line}" in report_text(report(*levels, instances=instances), PerfSettings())


@pytest.mark.parametrize(("rate", "instances"), [(50, 1), (190, 0)])
def test_nothing_is_said_of_instances_that_are_idle_or_unknown(rate: float, instances: int) -> None:
    text = report_text(report(working(4, rate, 10_000), instances=instances), PerfSettings())
    assert "Instances:" not in text


def test_conclusions() -> None:
    busy = ClientUsage(cpu_cores=1, is_bottleneck=True)
    found = report(
        level(1, window(LATENCIES)),
        level(2, window(LATENCIES, 1, client=busy)),
        level(4, window(LATENCIES, 0.5), unstable_reason="the latency varies"),
        warmup_ns=95_400_000_000,
        is_interrupted=True,
        usage_missing="there is no page",
    )
    text = report_text(found, PerfSettings()).partition("Conclusions:\n")[2].partition("\n\n")[0]
    assert text.splitlines() == [
        "  First response: 95.4 s after its request; it is in no window",
        "  Most inferences: 100 a second at Concurrency: 2, p99 298 usec; Concurrency: 4 had 200, but was unstable",
        "  Unstable: Concurrency: 4; longer windows (--measurement-interval) settle more",
        "  The client was the bottleneck: Concurrency: 2; the server can do more than these figures",
        "  Server CPU and memory: not known, there is no page; use --metrics-url or --server-pid",
        "  The run was interrupted: levels are missing",
    ]


def test_huge_and_tiny_figures() -> None:
    slow = level(1, window([9.5e9] * 3, 30_000))
    fast = level(1_000_000, window([0.4] * 1000, 0.001, send_ns=0, wait_ns=400_000, receive_ns=0))
    text = report_text(report(slow, fast), PerfSettings())
    assert "Concurrency: 1, throughput: 0.0001 infer/sec, latency 9500000000 usec\n" in text
    assert "Concurrency: 1e+06, throughput: 1e+06 infer/sec, latency 0 usec\n" in text
