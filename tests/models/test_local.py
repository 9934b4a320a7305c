import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from atrl_bench.errors import MissingDataError
from atrl_bench.models import local
from atrl_bench.models.prompt import Prompt, Sampling


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model, mini_processor) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_model.save_pretrained(path)
    mini_processor.save_pretrained(path)
    return path


def test_a_folder_is_named_by_its_last_part_wherever_it_lies(folder, tmp_path) -> None:
    copy = shutil.copytree(folder, tmp_path / folder.name)
    assert local.find_model(folder).name == local.find_model(str(copy)).name == folder.name
    assert local.find_model(folder).digest == local.find_model(copy).digest


def test_the_digest_changes_with_weights_and_settings_and_not_with_other_files(folder, tmp_path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    before = local.find_model(copy).digest
    (copy / "metrics.jsonl").write_text("{}")
    (copy / "README.md").write_text("hello")
    assert local.find_model(copy).digest == before
    config = json.loads((copy / "generation_config.json").read_text())
    (copy / "generation_config.json").write_text(json.dumps(config | {"eos_token_id": 0}))
    after = local.find_model(copy).digest
    assert after != before
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert local.find_model(copy).digest not in (before, after)


def test_a_digest_is_remembered_until_the_file_changes(folder, tmp_path, monkeypatch) -> None:
    first = local.find_model(folder).digest
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("read a file it already knew"))
    assert local.find_model(folder).digest == first


@pytest.mark.parametrize("name", ["nowhere", "./nowhere", "/nowhere/at/all", "a/b/c", "hf://nothing"])
def test_a_model_that_is_no_folder_and_no_hub_id_says_what_one_is(name) -> None:
    with pytest.raises(MissingDataError, match=r"It is no folder and no hub id\.\nNext: .* or a hub id such as"):
        local.find_model(name)


def test_a_model_is_loaded_once_and_bounds_its_images(folder) -> None:
    ref = local.find_model(folder)
    loaded = local.load(ref, min_pixels=56 * 56, max_pixels=112 * 112, dtype="float32")
    try:
        assert local.load(ref, min_pixels=56 * 56, max_pixels=112 * 112, dtype="float32") is loaded
        # 1120 x 1120 pixels become at most 112 x 112: eight by eight patches of 14, of which four make a token.
        grid = loaded.processor.image_processor([Image.new("RGB", (1120, 1120))], return_tensors="pt").image_grid_thw
        assert grid.tolist() == [[1, 8, 8]]
        assert loaded.processor.tokenizer.padding_side == "left"
        assert not loaded.model.training
    finally:
        local.release()
    assert local.load(ref, min_pixels=56 * 56, max_pixels=112 * 112, dtype="float32") is not loaded
    local.release()


def timeless(responses):
    return [[replace(response, seconds=0.0) for response in of_prompt] for of_prompt in responses]


def test_answers_come_back_for_the_repeats_that_were_asked_for(folder) -> None:
    loaded = local.load(local.find_model(folder), min_pixels=56 * 56, max_pixels=112 * 112, dtype="float32")
    turn = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which digit?"}]}]
    prompts = [Prompt(name, turn, [Image.new("RGB", (56, 56))]) for name in "ab"]
    all_of_them = loaded.generate(prompts, [range(3), range(3)], Sampling(5))
    some = loaded.generate(prompts, [[2], [0, 1]], Sampling(5))
    local.release()
    assert timeless(some) == timeless([all_of_them[0][2:], all_of_them[1][:2]])
    assert len({answer.text for answer in all_of_them[0]}) > 1  # at temperature 1 they differ
    assert all_of_them[0][0].prompt_hash == all_of_them[1][0].prompt_hash  # the same words and pixels
