"""Damaged files without a checksum, whose numbers treelite trusts: no server ends or hangs because of one."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

treelite = pytest.importorskip("treelite", reason="the extra fil is not installed")
pytest.importorskip("xgboost", reason="xgboost is not installed")

from naiad.backends.fil import trial_main  # noqa: E402
from support.forest_models import (  # noqa: E402
    FEATURES,
    LEGACY,
    TESTED,
    THREE,
    answer,
    refusal,
    tensors,
    xgboost_model,
)

PROGRAM = Path(trial_main.__file__)
CASES = 200
# Each case in a fork of one process, which has imported treelite: exit code 0 for sound, 1 for refused.
MANY = """
import json, os, random, sys, time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import treelite
import trial_main as trial

whole, folder, model_type, seen = Path(sys.argv[2]).read_bytes(), Path(sys.argv[3]), sys.argv[5], []
chance = random.Random(7)
for case in range(int(sys.argv[4])):
    place, content = chance.randrange(len(whole)), bytearray(whole)
    if case % 4:
        content[place] ^= 1 << chance.randrange(8)
    else:
        del content[place:]
    path = folder / f"{case}.file"
    path.write_bytes(content)
    if (child := os.fork()) == 0:
        sys.stderr = sys.stdout = open(os.devnull, "w")
        try:
            trial.limit(path, 3)
            trial.check(path, model_type)
        except Exception:
            os._exit(1)
        os._exit(0)
    seen.append((case, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    xgboost_model("multi:softprob", THREE, num_class=3).save_model(folder / "xgboost.json")
    treelite.frontend.load_xgboost_model(folder / "xgboost.json").serialize(folder / "checkpoint.tl")
    return folder / "checkpoint.tl"


def place_of(content: bytes, values: list[int], dtype: str) -> int:
    """Where an array of these values begins, after its length."""
    array = np.array(values, dtype).tobytes()
    return content.index(np.uint64(len(values)).tobytes() + array) + 8


@pytest.mark.parametrize(
    ("field", "index", "value", "words"),
    [
        ("cleft", 0, 0, "a child beyond its"),
        ("cleft", 0, 1 << 20, "a child beyond its"),
        ("cright", 0, 1, "a node with two parents"),
        ("split_index", 0, 4000, f"a split beyond {FEATURES} features"),
    ],
)
def test_trees_that_lead_nowhere(tmp_path: Path, whole: Path, field: str, index: int, value: int, words: str) -> None:
    """A run would read beyond its arrays, or never come to a leaf."""
    model = treelite.Model.deserialize(whole)
    values = model.get_tree_accessor(0).get_field(field).astype(np.int32)
    content = bytearray(whole.read_bytes())
    at = place_of(bytes(content), values.tolist(), "int32") + 4 * index
    content[at : at + 4] = np.int32(value).tobytes()
    path = tmp_path / "checkpoint.tl"
    path.write_bytes(content)
    text = refusal(path, tensors(FEATURES, 3))
    assert f"treelite cannot read {path} as a treelite checkpoint: it has tree 0: {words}" in text
    assert text.endswith("save or copy it again, or correct model_type")


@pytest.mark.slow
def test_a_count_that_asks_for_all_memory(tmp_path: Path, whole: Path) -> None:
    content = bytearray(whole.read_bytes())
    # The count of trees follows the version and two types.
    content[14:22] = np.uint64(1 << 40).tobytes()
    path = tmp_path / "checkpoint.tl"
    path.write_bytes(content)
    assert f"treelite cannot read {path} as a treelite checkpoint: " in refusal(path, tensors(FEATURES, 3))


@pytest.mark.slow
def test_a_program_that_dies_is_an_error_of_the_load(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which damage ends treelite is another with each version; here every Python of the environment ends."""
    path = tmp_path / "checkpoint.tl"
    path.write_bytes(whole.read_bytes())
    (tmp_path / "sitecustomize.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        assert "a trial in a process of its own: python ended with exit code -11" in refusal(path, tensors(FEATURES, 3))
    assert answer(path, tensors(FEATURES, 3)).shape == (len(TESTED), 3)


LOADERS = {
    "treelite_checkpoint": treelite.Model.deserialize,
    "xgboost": treelite.frontend.load_xgboost_model_legacy_binary,
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("model_type", LOADERS)
def test_damage_anywhere(tmp_path: Path, whole: Path, model_type: str) -> None:
    """Flipped bits and cut ends: what the program finds sound can be loaded and run by the test itself."""
    if model_type == "xgboost":
        whole = tmp_path / "xgboost.model"
        whole.write_bytes(zlib.decompress(base64.b85decode(LEGACY)))
    command = [sys.executable, "-P", "-c", MANY, PROGRAM.parent, whole, tmp_path, str(CASES), model_type]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    seen = dict(json.loads(done.stdout))
    assert len(seen) == CASES
    # Others died of treelite, or of a limit.
    sound = [case for case, code in seen.items() if code == 0]
    assert 0 < len(sound) < CASES
    if model_type == "treelite_checkpoint":
        # The end of a legacy file holds what no run needs.
        assert all(case % 4 for case in sound), "nothing that is cut short is sound"
    for case in sound:
        model = LOADERS[model_type](tmp_path / f"{case}.file")
        assert len(treelite.gtil.predict(model, np.zeros((4, model.num_feature), np.float32), nthread=1)) == 4
