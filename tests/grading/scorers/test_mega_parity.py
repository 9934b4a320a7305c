"""MEGA-Bench's field metrics against the official ones, which the installed lmms-eval carries, on random answers.

Left out are metrics whose official form needs a package that lmms-eval does not bring, a network, or `eval`, and inputs
on which the official form raises: it then gives 0, to the gold answer too.
"""

import importlib
import random
import sys
import types
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from atrl_bench.grading.scorers.mega.scoring import BY_REFERENCE

pytestmark = pytest.mark.full

OFFICIAL = {  # our name: (module, class, what its answers are made of)
    "simple_str_match": ("simple_str_match", "SimpleStrMatch", "words"),
    "set_equality": ("set_equality", "SetEquality", "words digits"),
    "str_set_equality_line_break": ("set_equality", "StringSetEqualityLineSplit", "words"),
    "str_set_equality_comma": ("set_equality", "StringSetEqualityCommaSplit", "words digits"),
    "jaccard_index": ("jaccard", "Jaccard", "words digits"),
    "set_precision": ("set_precision", "SetPrecision", "words digits"),
    "sequence_equality": ("sequence_equality", "SequenceEquality", "words digits"),
    "sequence_equality_case_insensitive": ("sequence_equality", "SequenceEqualityCaseInsensitive", "words"),
    "longest_common_list_prefix_ratio": (
        "longest_common_list_prefix_ratio",
        "LongestCommonListPrefixRatio",
        "words digits",
    ),
    "dict_equality": ("dict_equality", "DictEquality", "entries lists"),
    "dict_precision": ("dict_equality", "DictPrecision", "entries"),
    "dict_exact_str_match_agg_recall": ("dict_exact_match_agg_recall", "DictExactStrMatchAggRecall", "entries"),
    "dict_jaccard_agg_jaccard": ("dict_jaccard_agg_jaccard", "DictJaccardAggJaccard", "lists"),
    "dict_set_equality_agg_jaccard": ("dict_set_equality_agg_jaccard", "DictSetEqualityAggJaccard", "lists"),
    "nbbox_iou_tuple": ("nbbox_iou", "NbboxIouTuple", "boxes"),
    "nbbox_iou_sequence": ("nbbox_iou", "NbboxIouSequence", "boxes"),
    "xml_norm_point_distance": ("xml_norm_point_distance", "XmlNormPointDistance", "point"),
    "sequence_coords_similarity": ("coordinate_sequence_match", "CoordsSequenceSimilarity", "points"),
    "number_rel_diff_ratio": ("number_rel_diff_ratio", "NumberRelDiffRatio", "number"),
    "normalized_rmse": ("mse", "NormalizedRMSE", "number"),
    "angle_seq_float_rmse": ("mse", "AngleSeqFloatRMSE", "digits"),
    "bleu": ("sacrebleu_bleu", "Bleu", "sentence"),
}
WORDS = ("up", "Down", "left", "New York", "x-ray")


@pytest.fixture(scope="module")
def official() -> Iterator[Callable[[str, str], Callable[[str, str], float]]]:
    """Gives an official metric by module and class, without their package's `__init__`, which imports all of them."""
    spec = find_spec("lmms_eval")
    assert spec is not None
    root = Path(str(spec.origin)).parent / "tasks" / "megabench"
    before = set(sys.modules)
    for name in ("metrics", "metrics.scoring", "metrics.parsing", "metrics.scoring.common", "metrics.parsing.common"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package
    yield lambda module, name: getattr(importlib.import_module(f"metrics.scoring.{module}"), name).match
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "metrics":
            del sys.modules[name]


def written(values: list, chance: random.Random) -> str:
    inner = ", ".join(map(str, values))
    return chance.choice([str(values), str(tuple(values)), f"[{inner}]", inner])


def drawn(kind: str, chance: random.Random) -> str:
    def box() -> tuple[float, ...]:
        x, y, width, height = (round(chance.uniform(0, 0.5), 2) for _ in range(4))
        return x, y, round(x + width, 2), round(y + height, 2)

    def several(make: Callable[[], object]) -> list:
        return [make() for _ in range(chance.randint(1, 3))]

    return {
        "words": lambda: written(several(lambda: chance.choice(WORDS)), chance),
        "digits": lambda: written(several(lambda: chance.randint(0, 3)), chance),
        "entries": lambda: str({key: chance.choice("12") for key in chance.sample("abc", 2)}),
        "lists": lambda: str({key: several(lambda: chance.randint(0, 3)) for key in chance.sample("abc", 2)}),
        "boxes": lambda: str(several(box)),
        "point": lambda: "<point>{}, {}</point>".format(*box()),
        "points": lambda: str(several(lambda: box()[:2])),
        "number": lambda: chance.choice(["7", "3.5", "-2", "0.52", "0.5", "1e2"]),
        "sentence": lambda: " ".join(chance.choice(("the", "cat", "sat", "mat")) for _ in range(chance.randint(4, 8))),
    }[kind]()


@pytest.mark.parametrize("metric", OFFICIAL)
def test_a_metric_gives_what_the_official_one_gives(metric, official) -> None:
    module, name, kinds = OFFICIAL[metric]
    theirs, ours, chance = official(module, name), BY_REFERENCE[metric], random.Random(metric)
    scores = set()
    for _ in range(60):
        kind = chance.choice(kinds.split())
        gold = drawn(kind, chance)
        answer = gold if chance.random() < 0.3 else drawn(kind, chance)
        expected = float(theirs(answer, gold))
        assert ours(answer, gold) == pytest.approx(expected), (answer, gold)
        scores.add(expected)
    assert len(scores) > 1  # right and wrong answers were among them
