"""A model from somewhere else is weights and settings: nothing of it is run."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from atrl_bench.errors import MissingDataError
from atrl_bench.mini import BASE
from atrl_bench.models.local import find_model, load


class Touch:
    """What a pickle may ask its reader to do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def hostile(tmp_path):
    """A model whose settings name code of its own, which leaves a file when it is imported."""
    folder, owned = tmp_path / "model", tmp_path / "owned"
    shutil.copytree(BASE, folder)
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({str(owned)!r}).touch()\nclass Evil: ...\n")
    for name in ("config.json", "tokenizer_config.json", "preprocessor_config.json"):
        if (path := folder / name).is_file():
            classes = ("AutoConfig", "AutoModel", "AutoModelForImageTextToText", "AutoTokenizer", "AutoProcessor")
            path.write_text(
                json.dumps(json.loads(path.read_text()) | {"auto_map": dict.fromkeys(classes, "evil.Evil")})
            )
    return folder, owned


def test_code_that_a_model_brings_is_not_run(hostile) -> None:
    folder, owned = hostile
    load(find_model(folder), min_pixels=3136, max_pixels=50176, dtype="float32")
    assert not owned.exists()


def test_weights_that_are_no_safetensors_are_not_read(hostile) -> None:
    folder, owned = hostile
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(owned)))
    with pytest.raises((MissingDataError, OSError)):
        load(find_model(folder), min_pixels=3136, max_pixels=50176, dtype="float32")
    assert not owned.exists()
