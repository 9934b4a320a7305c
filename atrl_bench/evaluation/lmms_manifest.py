"""Tells lmms-eval that `--model atrl` is ours; it asks by the entry point `lmms_eval.models`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest


def manifest() -> ModelManifest:
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest("atrl", chat_class_path="atrl_bench.evaluation.lmms_model.RepeatSampler")
