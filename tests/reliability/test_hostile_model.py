"""A model from somewhere else is weights and settings: nothing of it is run."""

import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.mini import BASE
from atrl_bench.models import chat_template
from atrl_bench.models.local import DONE, find_model, load
from atrl_bench.models.shape import model_shape


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


HEADERS = {
    "cut off": b"\x40\0\0\0\0\0\0\0{",
    "of 2**62 bytes": (1 << 62).to_bytes(8, "little") + b"{}",
    "null": b"\x04\0\0\0\0\0\0\0null",
    "a list": b"\x02\0\0\0\0\0\0\0[]",
    "a number for a tensor": b"\x07\0\0\0\0\0\0\0" + b'{"a":5}',
    "a shape of words": b"\x19\0\0\0\0\0\0\0" + b'{"a":{"shape":["a","b"]}}',
    "a negative shape": b"\x14\0\0\0\0\0\0\0" + b'{"a":{"shape":[-5]}}',
    "nothing": b"",
}


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS.keys())
def test_a_header_of_weights_is_not_believed(content, tmp_path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "config.json").write_text(
        '{"num_attention_heads": 2, "hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": 8}'
    )
    with pytest.raises(InvalidFileError, match=r"model\.safetensors is not what a model has"):
        model_shape(str(tmp_path))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"hidden_size": "x", "num_attention_heads": 0}'])
def test_a_configuration_that_is_none_is_named(content, tmp_path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidFileError, match=r"config\.json is not what a model has"):
        model_shape(str(tmp_path))


def test_every_file_that_changes_a_model_changes_its_digest(tmp_path) -> None:
    """What transformers opens of a folder while it loads a model is what the digest is of."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    folder = tmp_path / "model"
    shutil.copytree(BASE, folder)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    get_peft_model(model, LoraConfig(target_modules=["q_proj"])).save_pretrained(folder)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "other.jinja").write_text("{{ messages }}")
    opened: set[Path] = set()
    sys.addaudithook(lambda event, arguments: _note(opened, event, arguments))
    ref = find_model(folder)
    digest, known = ref.digest, {folder / name for name in ref.files}
    opened.clear()
    load(ref, min_pixels=3136, max_pixels=50176, dtype="float32")
    inside = {path for path in opened if folder in path.parents and path.is_file()}
    assert {path.name for path in inside} >= {"config.json", "adapter_config.json", "tokenizer.json"}
    assert {path.name for path in inside - known} <= {DONE}
    adapter = folder / "adapter_config.json"
    adapter.write_text(json.dumps(json.loads(adapter.read_text()) | {"lora_alpha": 64}))
    assert find_model(folder).digest != digest


def _note(opened: set[Path], event: str, arguments: tuple) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes | Path):
        opened.add(Path(os.fsdecode(arguments[0])))


TEMPLATES = {
    "for ever": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "without end": "{% set x = namespace(t='xxxxxxxx') %}{% for a in range(40) %}{% set x.t = x.t ~ x.t %}{% endfor %}",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_a_chat_template_that_takes_all_time_or_memory_is_not_used(template, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 1.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    processor = SimpleNamespace(chat_template=template)
    with pytest.raises(InvalidFileError, match=r"chat template of .* is not used"):
        chat_template.require_tame(processor, tmp_path)
