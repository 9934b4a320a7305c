"""A checkpoint that is not what its training left there is named before it is used; stored numbers do not need it."""

import json
import shutil

import pytest

from atrl_bench.errors import MissingDataError
from atrl_bench.mini import BASE
from atrl_bench.models.local import DONE, find_model


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "0123456789abcdef"
    shutil.copytree(BASE, folder)
    digest = find_model(folder).digest
    (folder / DONE).write_text(json.dumps({"digest": digest, "seconds": 1.0, "summary": {}}))
    return folder


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("change", [flip, lambda content: content[:-100], lambda content: b""])
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_files_that_have_changed_are_named_before_they_are_used(checkpoint, name, change):
    path = checkpoint / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(
        MissingDataError, match=rf"{checkpoint.name} is not what its training left(.|\n)*delete the folder"
    ):
        find_model(checkpoint)


def test_a_record_that_cannot_be_read_is_no_record(checkpoint):
    (checkpoint / DONE).write_text('{"digest": ')
    with pytest.raises(MissingDataError, match=r"unreadable in done\.json"):
        find_model(checkpoint)
