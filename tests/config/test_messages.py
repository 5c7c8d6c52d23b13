"""The private message classes: names and numbers of the protocol, and no clash with a client's own."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from google.protobuf.message_factory import GetMessageClass

from naiad.config import messages
from naiad.config.messages import ModelConfig, enum_name, enum_type, message_class

FIELDS = {
    "ModelConfig": {"name": 1, "max_batch_size": 4, "dynamic_batching": 11, "backend": 17, "model_metrics": 26},
    "ModelInput": {"name": 1, "data_type": 2, "dims": 4, "reshape": 5, "optional": 8},
    "ModelOutput": {"dims": 3, "label_filename": 4, "reshape": 5, "is_shape_tensor": 6},
    "ModelInstanceGroup": {"count": 2, "gpus": 3, "kind": 4, "host_policy": 9},
    "ModelSequenceBatching": {"max_sequence_idle_microseconds": 1, "direct": 3, "oldest": 4},
    "ModelWarmup.Input": {"data_type": 1, "zero_data": 3, "input_data_file": 5},
}

IMPORT_BOTH = """
import sys
for module in sys.argv[1:]:
    __import__(module)
from naiad.config.messages import ModelConfig
from google.protobuf import descriptor_pb2, descriptor_pool
shared = descriptor_pool.Default()
try:
    theirs = shared.FindMessageTypeByName("inference.ModelConfig")
except KeyError:
    theirs = None
assert theirs is not ModelConfig.DESCRIPTOR
print(ModelConfig(name="a").SerializeToString())
"""

CLIENT = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="model_config.proto", package="inference", syntax="proto3")
file.message_type.add(name="ModelConfig").field.add(name="other", number=1, type=5, label=1)
descriptor_pool.Default().Add(file)
"""


@pytest.mark.parametrize("name", FIELDS)
def test_field_numbers(name: str) -> None:
    fields = message_class(name).DESCRIPTOR.fields_by_name
    assert {field: fields[field].number for field in FIELDS[name]} == FIELDS[name]


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="NoSuchMessage"):
        _ = messages.NoSuchMessage


def test_every_import_gives_the_same_class() -> None:
    assert messages.ModelConfig is ModelConfig is message_class("ModelConfig")


@pytest.mark.parametrize("name", ["ModelConfig", "ModelInferRequest"])
def test_classes_of_inner_messages_are_never_collected(name: str) -> None:
    """A class that is collected while another thread uses it ends the process."""
    waiting, classes = [message_class(name).DESCRIPTOR], {}
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name not in classes:
            classes[descriptor.full_name] = weakref.ref(GetMessageClass(descriptor))
            waiting += [field.message_type for field in descriptor.fields if field.message_type is not None]
    gc.collect()
    assert len(classes) > 3
    assert [full_name for full_name, class_ in classes.items() if class_() is None] == []


def test_enum_names() -> None:
    config = ModelConfig()
    config.input.add(data_type=enum_type("DataType").Value("TYPE_BF16"))
    config.input.add(data_type=99)
    assert [enum_name(tensor, "data_type") for tensor in config.input] == ["TYPE_BF16", "99"]


@pytest.mark.parametrize("order", [("client", "naiad.config.messages"), ("naiad.config.messages", "client")])
def test_lives_beside_another_package_with_the_same_messages(order: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    _run(order, tmp_path)


@pytest.mark.parametrize("first", [True, False])
def test_lives_beside_the_official_client(first: bool, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    pytest.importorskip("tritonclient.grpc")
    order = ("tritonclient.grpc.model_config_pb2", "naiad.config.messages")
    _run(order if first else order[::-1], tmp_path)


def _run(order: tuple[str, ...], folder: Path) -> None:
    command = [sys.executable, "-c", IMPORT_BOTH, *order]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'\\n\\x01a'\n"


def test_descriptor_file_is_compiled_from_the_protos() -> None:
    pytest.importorskip("grpc_tools")
    script = Path(__file__).parents[2] / "scripts" / "compile-protos"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
