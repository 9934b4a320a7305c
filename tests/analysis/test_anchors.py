"""The study of anchors: chance and perfection by hand, single layers out of means, and the mini model's own result."""

import torch

from atrl_bench.analysis.anchors import CREDIT, LAST, SINGLE, known_problems, layer_alone, mean_auc, study
from atrl_bench.credit import AttentionRows
from atrl_bench.models import local
from atrl_bench.profiles import load_profile

ANCHORS = [torch.tensor([True, False, False])]


def test_several_draws_of_random_numbers_are_one_value_a_problem():
    draws = [[torch.tensor([3.0, 1.0, 2.0])] * 2, [torch.tensor([0.0, 1.0, 2.0])] * 2]
    assert mean_auc(ANCHORS * 2, *draws) == (0.5, 0.0, 2)


def test_a_single_layer_is_what_a_mean_has_more_than_the_shorter_one():
    visual = torch.tensor([True, False])
    last, before = torch.tensor([[0.2, 0.8]]), torch.tensor([[0.6, 0.4]])
    [layer] = layer_alone([AttentionRows((last + before) / 2, visual)], [AttentionRows(last, visual)], 2)
    torch.testing.assert_close(layer.rows_TS, before)


def test_known_problems_are_the_same_every_time_and_list_what_they_show():
    first, second = known_problems(4), known_problems(4)
    assert [p.response for p in first] == [p.response for p in second]
    for problem in first:
        assert f"shows {problem.transcription}." in problem.response


def test_the_rows_that_predict_find_what_the_mini_model_reads_and_own_rows_do_not():
    sizes = load_profile("mini").evaluation
    ref = local.find_model("mini")
    model = local.load(ref, min_pixels=sizes.min_pixels, max_pixels=sizes.max_pixels, dtype=sizes.dtype)
    scores = study(model, known_problems(4))
    found = {(s.part, s.reading, s.corrected): s.mean for s in scores if s.setting == "4"}
    assert found[LAST, "predicting", True] > 0.95
    assert found[LAST, "own", True] < 0.8
    assert {s.setting for s in scores if s.part == SINGLE} == {f"{n} from the end" for n in (1, 2, 3, 4)}
    assert {s.preset for s in scores if s.part == CREDIT} == {"literal", "default"}
