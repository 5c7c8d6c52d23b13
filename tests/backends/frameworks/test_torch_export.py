"""The contract of framework backends for archives of ``torch.export``, run as they are: compiling takes too long."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("torch.export.pt2_archive", reason="this torch writes archives of an older form")

from backends.contract import FrameworkContract, InstanceContract, reloads  # noqa: E402
from support import exported_models as models  # noqa: E402
from support.framework import Framework, damaged  # noqa: E402
from support.framework_server import framework_server  # noqa: E402

DAMAGED = r"model\.pt2 cannot be read as an archive of torch\.export: .*; it is damaged or cut short"


class TestContract(FrameworkContract):
    framework = Framework(
        name="pytorch",
        config='platform: "torch_aoti" parameters { key: "COMPILE" value { string_value: "false" } }',
        file="model.pt2",
        network=models.network,
        run=models.run,
        pool_parameter="INTRA_OP_THREAD_COUNT",
        broken=damaged(missing=r"model\.pt2 does not exist", empty=DAMAGED, garbage=DAMAGED, cut=DAMAGED),
        mismatches={
            "datatype": r"the configuration says TYPE_INT32, the model has TYPE_FP32",
            "dims": r"the model expects .*shape \[-1,4\].*shape \[-1,5\]",
        },
        identity=models.identity,
        datatypes=(models.WIRES,),
        odd_names=models.ODD_NAMES,
        scalar=models.scalar,
        ragged=models.ragged,
        failing=models.failing,
        failure="torch: IndexError: index 99 is out of bounds",
        slow_modes=("process", "shared"),
        brief_modes=("process",),
        others_not_in=("process",),
        lacks={"wrong_name": "a lone input may have any name"},
    )

    @pytest.mark.slow
    @reloads
    def test_reloads_do_not_grow_the_server(self, mode: str, tmp_path: Path) -> None:
        """torch.export keeps some 20 KiB of each load for good, and its graphs until a full collection of garbage."""
        with framework_server(self.framework, mode, tmp_path, MALLOC_ARENA_MAX="1") as served:
            # In a shared process it is the process that would grow, so one that stays is there from the beginning.
            served.cached("network", lambda path: models.network(path, 0, 8))
            served.write("again", lambda path: models.network(path, 1, 16))

            def reload() -> int:
                served.load("again")
                served.unload("again")
                return served.anonymous_memory_bytes()

            first = max(reload() for _ in range(20))
            last = min([reload() for _ in range(40)][-5:])
            assert last - first <= 40 * 256 * 1024


class TestInstance(InstanceContract):
    framework = TestContract.framework
