"""The embedded default: handwritten digits, synthetic benchmarks, and a tiny real Qwen2.5-VL."""

from atrl_bench.models.bases import base_folder

BASE = base_folder("mini")
CODE_WORDS = (
    "code_words",
    "code_words_test",
    "shortcut_words",
    "shortcut_words_test",
)  # generated whatever the profile: these datasets are nowhere else
