"""How a task's version was called before names of code stopped depending on modules, imports and local names.

Version 2 of the store named a task by the text of its files; a store that is brought up to version 3 has its cells
renamed by this list (`schema.py`). A task that is not listed was somebody's own: its cells stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from atrl_bench.digests import canonical_json

# task: (version in a store of version 2, version now)
RENAMED: Mapping[str, tuple[str, str]] = {
    "chartmimic_customized_600": ("1.0-806ba3a0", "1.0-7ad78483"),
    "chartmimic_direct_600": ("1.0-712c4bc9", "1.0-769989fb"),
    "chartqapro_test": ("1.0-5408d9f6", "1.0-ee93dddb"),
    "emma_mini": ("1.0-add92575", "1.0-19673ca7"),
    "emma_test": ("1.0-fce4cdb1", "1.0-9392155d"),
    "geoqa_test": ("1.0-6a24bbc8", "1.0-f471580f"),
    "infovqa_val": ("1.0-2f834d84", "1.0-83ad1fe5"),
    "mathverse_testmini": ("1.0-94ddc03e", "1.0-2734ddcf"),
    "mathverse_text_only": ("1.0-45367ae8", "1.0-71919bb1"),
    "mathvision_test": ("1.0-3a6ddfce", "1.0-72c01fea"),
    "mathvision_testmini": ("1.0-13824ca5", "1.0-b454ab63"),
    "mathvista_testmini": ("1.0-a47dcb20", "1.0-75b512c4"),
    "mega_bench_core": ("1.0-1aae1b88", "1.0-8f991989"),
    "mega_bench_core_si": ("1.0-aa68b3dd", "1.0-872ed872"),
    "mmmu_pro_standard": ("1.0-a9ba2e76", "1.0-5baecbaf"),
    "mmmu_pro_vision": ("1.0-b3016b9f", "1.0-eef21119"),
    "mmmu_val": ("1.0-f1f94932", "1.0-eae2cfb1"),
    "mmvu_val": ("1.0-dfd19169", "1.0-ceb9cd91"),
    "textvqa_val": ("1.0-4906dce3", "1.0-8365037d"),
    "video_mmmu_adaptation": ("1.0-61548c83", "1.0-7fee10bf"),
    "video_mmmu_comprehension": ("1.0-509e6d79", "1.0-ca7ee103"),
    "video_mmmu_perception": ("1.0-161232be", "1.0-50859fc6"),
    "vsi_bench": ("1.0-f590a9c8", "1.0-f4cb1960"),
    "wemath_testmini": ("1.0-298f964b", "1.0-5f647e6f"),
}


def renamed_spec(spec: str) -> str:
    """Return a cell's spec with the version that its task has now; any other spec as it is."""
    settings = json.loads(spec)
    old, new = RENAMED.get(settings.get("task"), ("", ""))
    return canonical_json(settings | {"task_version": new}) if old and settings.get("task_version") == old else spec
