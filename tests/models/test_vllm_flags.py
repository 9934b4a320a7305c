"""The flags that decide the number of a served model, worked out by hand from a profile and a model's files."""

import json

from atrl_bench.models.bases import base_folder
from atrl_bench.models.vllm_flags import vllm_flags
from atrl_bench.profiles import load_profile

PAPER = load_profile("paper").evaluation
VISION = {"vision_config": {"patch_size": 14, "spatial_merge_size": 2}}


def flags_of(folder, config, num_gpus=1, **options) -> dict[str, str | None]:
    (folder / "config.json").write_text(json.dumps(config))
    words = vllm_flags(folder, PAPER, num_gpus=num_gpus, **options)
    pairs = zip(words, [*words[1:], "--"], strict=True)
    return {word: None if value.startswith("--") else value for word, value in pairs if word.startswith("--")}


def test_a_model_that_sees_images_is_served_as_the_profile_reads_and_answers(tmp_path):
    flags = flags_of(tmp_path, {**VISION, "text_config": {"max_position_embeddings": 128_000}})
    assert flags == {
        "--generation-config": "vllm",
        "--dtype": "bfloat16",
        # 16 images of 1,003,520 / 784 = 1,280 tokens, 8,192 of words, 4,096 of answer.
        "--max-model-len": str(16 * 1280 + 8192 + 4096),
        "--limit-mm-per-prompt": '{"image": 16, "video": 0}',
        "--mm-processor-kwargs": '{"min_pixels": 200704, "max_pixels": 1003520}',
    }


def test_a_judge_sees_no_images_and_no_model_gets_more_positions_than_it_has(tmp_path):
    flags = flags_of(tmp_path, {"max_position_embeddings": 10_000})
    assert flags == {"--generation-config": "vllm", "--dtype": "bfloat16", "--max-model-len": "10000"}


def test_gpus_hold_as_many_copies_as_there_is_room_for(tmp_path):
    one_each = flags_of(tmp_path, VISION, num_gpus=4)
    assert one_each["--data-parallel-size"] == "4"
    assert "--tensor-parallel-size" not in one_each
    two_each = flags_of(tmp_path, VISION, num_gpus=4, gpus_per_copy=2)
    assert (two_each["--data-parallel-size"], two_each["--tensor-parallel-size"]) == ("2", "2")
    all_for_one = flags_of(tmp_path, VISION, num_gpus=4, gpus_per_copy=4)
    assert all_for_one["--tensor-parallel-size"] == "4"
    assert "--data-parallel-size" not in all_for_one


def test_on_a_cpu_prompts_are_not_read_in_chunks(tmp_path):
    words = vllm_flags(base_folder("mini"), load_profile("smoke").evaluation, num_gpus=0)
    assert {"--no-enable-chunked-prefill", "--enforce-eager", "--kv-cache-memory-bytes"} <= {*words}
    assert words[words.index("--max-model-len") + 1] == "2048"
