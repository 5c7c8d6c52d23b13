"""The dashboard in a real browser: what a person sees and does there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from naiad.testing import RunningServer, serving, start_server, write_model
from support.api_keys import hashed
from support.browser import Browser, needs_browser, started_browser
from support.http_application import identity_config

needs_browser()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AXE = Path(sys.prefix) / "interop-node" / "node_modules" / "axe-core" / "axe.min.js"
KEY = "the-key-of-the-owner"
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false")
SLOW_MODEL = """
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.05)
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", each)]) for each in inputs]
"""
SLOW_CONFIG = """
backend: "python"
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
IMAGE_CONFIG = """
backend: "identity"
max_batch_size: 4
input [ { name: "IMAGE" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 8, 8 ] } ]
output [ { name: "COPY" data_type: TYPE_FP32 dims: [ 3, 8, 8 ] } ]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("models")
    repository = folder / "models"
    vector = identity_config(("0", "TYPE_FP32", "[ -1 ]"), more="max_batch_size: 8 version_policy { all {} }")
    write_model(repository, "vector", vector, versions=(1, 2))
    write_model(repository, "texts", identity_config(("0", "TYPE_STRING", "[ -1 ]")))
    write_model(repository, "image", IMAGE_CONFIG)
    write_model(repository, "slow", SLOW_CONFIG, files={"model.py": SLOW_MODEL})
    write_model(repository, "failed", 'backend: "onnxruntime"\n' + vector.replace('backend: "identity"', ""))
    options = (*EXPLICIT, "--slow-requests=10")
    with serving(folder / "log", "--model-repository", repository, *options) as running:
        yield running


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, server: RunningServer) -> Iterator[Browser]:
    """The dashboard of the server, loaded anew, without a complaint in the console at the end."""
    chromium.size(1440, 900)
    chromium.open(f"http://localhost:{server.http}/dashboard/")
    chromium.find("#link", "live")
    chromium.complaints()
    yield chromium
    assert chromium.complaints() == []


def send(page: Browser) -> None:
    page.click("button[type=submit]")


# Models


def test_models_with_their_states(page: Browser, server: RunningServer) -> None:
    page.find("#row-1, .line-of", "vector")
    states = dict(zip(page.texts(".line-of .name b"), page.texts(".line-of .state .state"), strict=True))
    assert states == {"failed": "failed", "image": "ready", "slow": "ready", "texts": "ready", "vector": "ready"}
    assert any("model.onnx" in text for text in page.texts(".line-of .reason"))
    server.infer("slow", {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1], "data": [1]}]})
    page.until(lambda: any("ms" in text for text in page.texts(".line-of .p99")), "a latency is shown")


def test_everything_comes_from_this_server(page: Browser, server: RunningServer) -> None:
    loaded = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(loaded) > 10
    assert {address.split("/")[2] for address in loaded} == {f"localhost:{server.http}"}


def test_pages_that_one_has_left_hold_no_connections(chromium: Browser, server: RunningServer) -> None:
    """A browser has six to a server, and keeps the pages for its button "back"."""
    address = f"http://localhost:{server.http}/dashboard/"
    for _ in range(7):
        chromium.open(address)
        chromium.find("#link", "live")
        # Since the page began to load. A minute later the browser gives up a page that it keeps.
        assert chromium.run("return performance.now()") < 30_000
    chromium.driver.back()
    chromium.driver.back()
    chromium.find("#link", "live")
    server.infer("slow", {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1], "data": [1]}]})
    chromium.until(lambda: any("ms" in text for text in chromium.texts(".line-of .p99")), "a latency is shown")


def test_the_keyboard_opens_and_closes_a_model(page: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    page.find(".line-of", "vector")
    page.run("document.querySelector('.table').focus()")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    page.find(".pane h2", "image")
    page.run("document.querySelector('#tab-live').focus()")
    page.press(Keys.ARROW_RIGHT)
    page.find("#pane-body .try legend", "IMAGE")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all(".pane"), "the pane is closed")


def test_the_filter(page: Browser) -> None:
    page.find(".line-of", "vector")
    page.fill("input[type=search]", "tex")
    assert page.texts(".line-of .name b") == ["texts"]
    page.fill("input[type=search]", "nothing like it")
    page.find(".empty", "No model fits the filter.")


# Requests


def test_numbers_nan_included(page: Browser) -> None:
    page.go("#models/vector/2/try")
    page.fill(".shape", "1, 4")
    page.fill("fieldset textarea", "1 nan -inf 2.5")
    send(page)
    page.find(".values", "1  NaN  -Infinity  2.5")
    page.find(".result", "1 NaN, 1 infinite")
    page.find(".strip-legend", "model")


def test_the_times_are_those_of_the_request(page: Browser, server: RunningServer) -> None:
    """Also while others use the model: by its statistics alone they would be a mean."""
    page.go("#models/slow/1/try")
    page.find("fieldset textarea")
    page.run("""
        const ask = window.fetch;
        window.fetch = async (url, options) => {
          const answer = await ask(url, options);
          // The others come between the request and the next look at the statistics.
          if (String(url).endsWith("/infer")) await ask(url, {...options, signal: undefined});
          return answer;
        };""")
    send(page)
    page.find(".strip-legend", "model")
    assert not any("Mean of" in text for text in page.texts(".result p"))


def test_a_huge_response_is_cut(page: Browser) -> None:
    page.go("#models/vector/2/try")
    page.fill(".shape", "1, 2000000")
    page.fill("fieldset textarea", "7")
    send(page)
    page.find(".values", "1999936 more")
    assert len(page.texts(".values")[0]) < 1000


def test_a_mistake_is_named(page: Browser) -> None:
    page.go("#models/vector/2/try")
    page.fill(".shape", "1, 3")
    page.fill("fieldset textarea", "1 2")
    send(page)
    page.find(".error-box", "INPUT0 has 2 values, and its shape [1, 3] needs 3")
    page.fill("fieldset textarea", "1 2 three")
    send(page)
    page.find(".error-box", "'three' is no number")


def test_an_error_of_the_server_is_shown(page: Browser) -> None:
    page.go("#models/vector/2/try")
    page.fill(".shape", "99, 1")
    page.fill("fieldset textarea", "0")
    send(page)
    page.find(".error-box", "400: ")
    # The browser reports every response with an error status itself.
    assert all("400" in text for text in page.complaints())


def test_texts(page: Browser) -> None:
    page.go("#models/texts/1/try")
    page.fill(".shape", "2")
    page.fill("fieldset textarea", "Grüße\n<b>bold</b>")
    send(page)
    page.find(".values", "Grüße\n<b>bold</b>")
    assert page.all(".values b") == []


def test_an_image_is_scaled_and_normalised(page: Browser, tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[..., 0] = 255
    Image.fromarray(pixels).save(tmp_path / "red.png")
    page.go("#models/image/1/try")
    page.find("input[type=file]").send_keys(str(tmp_path / "red.png"))
    page.find(".preview canvas")
    send(page)
    # The channels of red after ImageNet's mean and deviation: 2.2489, -2.0357, -1.8044.
    page.find(".result", "greatest 2.2489")
    page.find(".result", "least -2.03571")


@pytest.mark.parametrize("kind", ["curl", "Python", "gRPC"])
def test_the_program_sends_the_same_request(page: Browser, server: RunningServer, kind: str) -> None:
    page.go("#models/vector/2/try")
    page.fill(".shape", "1, 3")
    page.fill("fieldset textarea", "1.5 2 3")
    page.click("summary", "The request as a program")
    page.click(".chip", kind)
    (program,) = page.texts("details pre")
    assert "vector" in program
    if kind == "curl":
        command = ["bash", "-c", program]
    else:
        command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "1.5" in done.stdout


# Steering


def test_an_edited_configuration_is_checked_and_loaded(page: Browser, server: RunningServer) -> None:
    page.go("#models/image/1/config")
    page.find(".field-row", "config.pbtxt:3")
    page.click("summary", "Edit and reload")
    written = json.loads(page.run("return document.querySelector('#edited').value"))
    page.fill("#edited", json.dumps(written | {"max_batch_size": 2, "dynamic_batchin": {}}, indent=1))
    page.click("button", "Check and reload")
    page.find(".problems li", "did you mean 'dynamic_batching'")
    assert server.get("/v2/models/image/config").json()["max_batch_size"] == 4
    page.fill("#edited", json.dumps(written | {"max_batch_size": 2}, indent=1))
    page.click("button", "Check and reload")
    page.find(".toast", "image: loaded")
    assert server.get("/v2/models/image/config").json()["max_batch_size"] == 2
    page.find(".field-row", "the load request:")


def test_unload_and_load(page: Browser, server: RunningServer) -> None:
    page.go("#models/texts/1/live")
    page.click(".pane button", "Unload")
    page.click("dialog button", "Unload")
    page.find(".pane .row", "unloaded")
    assert server.get("/v2/models/texts/ready").status == 400
    page.click(".pane button", "Load")
    page.find(".pane .row", "ready")


def test_shares_of_versions(page: Browser, server: RunningServer) -> None:
    page.go("#models/vector/2/versions")
    page.find(".versions table", "Promote")
    for version, weight in (("1", "30"), ("2", "70")):
        page.run(f"document.querySelector('[aria-label=\"Weight of version {version}\"]').value = '{weight}'")
    page.click("button", "Use these weights")
    page.find(".versions td", "70%")
    assert server.get("/v2/models/vector/routes").json()["split"] == {"1": 30, "2": 70}
    page.click("button", "Back to the routes before")
    page.click("dialog button", "Go back")
    page.find(".versions", "Requests that name no version go to the highest version that is ready.")


# Slow requests and the log


def test_slow_requests_and_the_log(page: Browser, server: RunningServer) -> None:
    server.infer("slow", {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1], "data": [1]}]})
    page.go("#slow")
    page.find(".slow-list .tag")
    page.find(".slow .strip-legend", "model")
    page.go("#log")
    page.find(".log", "Started HTTPService")
    page.fill(".bar-of input[type=search]", "loading: slow")
    page.find(".log div", "loading: slow:1")
    assert len(page.texts(".log div:not([hidden])")) < 5


# The page itself


VIEWS = ("#models", *(f"#models/vector/2/{tab}" for tab in ("live", "try", "config", "versions")))


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: scripts/test puts it there")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(page: Browser, theme: str) -> None:
    page.run("document.documentElement.dataset.theme = arguments[0]", theme)
    page.run(AXE.read_text())
    found = []
    for view in (*VIEWS, "#models/failed/1/live", "#slow", "#log"):
        page.go(view)
        page.find("main > *")
        page.until(lambda: "Loading" not in page.texts("main")[0], "the view has loaded")
        script = "const done = arguments[0]; axe.run().then((found) => done(found.violations))"
        violations = page.driver.execute_async_script(script)
        found += [(view, v["id"], [node["html"][:200] for node in v["nodes"][:3]]) for v in violations]
    assert found == []


def test_nothing_is_wider_than_a_small_window(page: Browser) -> None:
    page.size(360, 740)
    for view in (*VIEWS, "#slow", "#log"):
        page.go(view)
        page.find("main > *")
        assert page.run("return document.documentElement.scrollWidth") == 360, view


def test_a_thousand_models_scroll(chromium: Browser, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    for number in range(1000):
        write_model(tmp_path / "models", f"model_{number:04}", identity_config(("0", "TYPE_FP32", "[ 1 ]")))
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models", "--model-control-mode=explicit") as many:
        chromium.size(1440, 900)
        chromium.open(f"http://localhost:{many.http}/dashboard/")
        chromium.find(".line-of", "model_0000")
        assert chromium.texts("#count") == ["1000"]
        assert len(chromium.all(".line-of")) < 60
        chromium.run("document.querySelector('.table').focus()")
        chromium.press(Keys.END)
        chromium.find(".line-of", "model_0999")
        assert len(chromium.all(".line-of")) < 60
        chromium.open("about:blank")


def test_a_server_that_goes_and_comes_back(chromium: Browser, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "m", identity_config(("0", "TYPE_FP32", "[ 1 ]")))
    with serving(tmp_path / "log", tmp_path / "models") as first:
        chromium.open(f"http://localhost:{first.http}/dashboard/")
        chromium.find("#link", "live")
        port = first.http
        first.kill()
        chromium.find("#link", "connection lost")
    addresses = ("--http-address=127.0.0.1", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false")
    again = start_server(tmp_path / "log2", tmp_path / "models", *addresses, ports=False)
    try:
        chromium.find("#link", "live")
        chromium.find(".line-of", "m")
        chromium.open("about:blank")
        assert again.stop() == 0
    finally:
        again.kill()


def test_a_key_is_asked_for_and_kept_nowhere(chromium: Browser, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "m", identity_config(("0", "TYPE_FP32", "[ 1 ]")))
    key = f"--api-key=owner infer,manage,observe {hashed(KEY)}"
    with serving(tmp_path / "log", tmp_path / "models", key) as locked:
        address = f"http://localhost:{locked.http}/dashboard/"
        chromium.open(address)
        chromium.find("dialog", "an API key is needed")
        chromium.find("#key-field").send_keys("wrong")
        chromium.click("dialog button[type=submit]")
        chromium.find("dialog", "the API key is not known")
        chromium.find("#key-field").send_keys(KEY)
        chromium.click("dialog button[type=submit]")
        chromium.find("#link", "live")
        chromium.find(".line-of", "m")
        stored = "return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
        assert KEY not in chromium.run(stored)
        chromium.open(address)
        chromium.find("dialog", "an API key is needed")
        chromium.open("about:blank")
