"""The credit of stored responses: aligned with the text, the same as in training, remembered, and refused by name."""

import dataclasses
import json

import pytest
from PIL import Image

from atrl_bench.credit import CreditConfig
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments import answer_credit
from atrl_bench.experiments.answer_credit import (
    credit_of_cell,
    credit_of_responses,
    remembered_credit,
    shade_changes,
)
from atrl_bench.experiments.jobs import answer_task
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models import local
from atrl_bench.models.prompt import Prompt
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

READ = "The image shows 3 7 2. 3+7=10, 10+2=12. The answer is \\boxed{12}."


@pytest.fixture(scope="module")
def mini():
    sizes = load_profile("smoke").evaluation
    ref = local.find_model("mini")
    return local.load(ref, min_pixels=sizes.min_pixels, max_pixels=sizes.max_pixels, dtype="float32")


@pytest.fixture(scope="module")
def prompt():
    content = [{"type": "image"}, {"type": "text", "text": "Find the sum of the digits."}]
    return Prompt("1", [{"role": "user", "content": content}], [Image.new("RGB", (56, 56), "white")])


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store with one cell: the mini model on four problems of MathVision."""
    sizes = load_profile("smoke").evaluation.model_copy(update={"max_problems": 4, "num_repeats": 1})
    run_dir = RunDir.at(tmp_path_factory.mktemp("run"), load_profile("smoke").model_copy(update={"evaluation": sizes}))
    with Store.open(run_dir.store_path) as store:
        yield store, answer_task(store, "mini", "mathvision_testmini", EvaluationOptions(), run_dir), run_dir


def test_the_texts_of_the_tokens_join_to_the_response(mini, prompt):
    for response in (READ, "", "héllo ∑ 漢字\n<|im_end|> <|image_pad|>", "  two  spaces "):
        [credit] = credit_of_responses(mini, [prompt], [response], CreditConfig())
        assert "".join(credit.texts) == response
        assert credit.texts[-1] == ""  # the token that ends the response
        assert len({len(value) for value in dataclasses.astuple(credit)}) == 1


def test_credit_has_mean_one_and_belongs_to_clusters(mini, prompt):
    [credit] = credit_of_responses(mini, [prompt], [READ], CreditConfig())
    assert sum(credit.credit_T) / len(credit.credit_T) == pytest.approx(1, abs=1e-4)
    of_cluster = {}
    for cluster, value in zip(credit.cluster_T, credit.credit_T, strict=True):
        assert of_cluster.setdefault(cluster, value) == value
    assert len(of_cluster) > 1


def test_reading_again_leaves_the_models_attention_as_it_was(mini, prompt):
    before = mini.model.config.text_config._attn_implementation
    credit_of_responses(mini, [prompt], [READ], CreditConfig())
    assert mini.model.config.text_config._attn_implementation == before


def test_the_reading_of_the_rows_changes_the_connectivity(mini, prompt):
    own, predicting = (
        credit_of_responses(mini, [prompt], [READ], CreditConfig().replace(reading=reading))[0].connectivity_T
        for reading in ("own", "predicting")
    )
    # The row of one token's own query is the row that predicted the next one.
    assert own[:-1] == pytest.approx(predicting[1:], abs=2e-5)
    assert own != predicting


def test_a_cells_credit_is_computed_once_and_then_read(filled, monkeypatch):
    store, key, run_dir = filled
    first = credit_of_cell(store, key, run_dir, num_problems=2)
    assert {answer[0] for answer in first} == {problem.problem_id for problem in store.problems(key)[:2]}
    whole = credit_of_cell(store, key, run_dir)
    assert whole.keys() == store.responses(key).keys()
    assert {answer: whole[answer] for answer in first} == first
    monkeypatch.setattr(local, "load", None)  # whoever needs the model again fails
    assert credit_of_cell(store, key, run_dir) == whole


@pytest.mark.parametrize(
    ("task", "options"), [("vsi_bench", {"frames": 4}), ("vsi_bench", {}), ("mathverse_text_only", {})]
)
def test_every_answer_gets_credit_however_its_cell_shows_a_problem(filled, task, options):
    """By another number of frames than the profile's, and with a prompt of the task file's own choice."""
    store, _, run_dir = filled
    key = answer_task(store, "mini", task, EvaluationOptions(limit=2, **options), run_dir)
    assert credit_of_cell(store, key, run_dir).keys() == store.responses(key).keys()


def test_a_damaged_line_of_the_memory_costs_one_answer_and_not_the_page(filled):
    store, key, run_dir = filled
    whole = credit_of_cell(store, key, run_dir)
    [path] = (run_dir.root / "credit").glob(f"{key}-*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"[1, 2]\n7\n\xff\n" + b"".join(lines[:-1]) + lines[-1][:40])
    assert len(remembered_credit(key, run_dir)) == len(whole) - 1
    assert credit_of_cell(store, key, run_dir) == whole
    assert path.read_bytes() == b"".join(lines)


def test_the_credit_of_an_answer_that_was_since_replaced_is_not_the_new_ones(filled):
    store, key, run_dir = filled
    whole = credit_of_cell(store, key, run_dir)
    [path] = (run_dir.root / "credit").glob(f"{key}-*.jsonl")
    first, *others = path.read_text().splitlines()
    problem_id, repeat, texts, *values = json.loads(first)
    path.write_text("\n".join([json.dumps([problem_id, repeat, ["Before, ", *texts[1:]], *values]), *others]))
    assert credit_of_cell(store, key, run_dir) == whole == remembered_credit(key, run_dir)


def test_the_answers_whose_verdict_another_cell_does_not_share_get_credit(filled):
    store, key, run_dir = filled
    other = store.add_cell({**store.cell(key).spec, "run_seed": 77})
    samples = store.samples(key)
    verdicts = {(s.problem.problem_id, s.response.repeat): s.verdict for s in samples}
    changed = next(answer for answer, verdict in verdicts.items() if verdict.state in ("correct", "wrong"))
    opposite = "wrong" if verdicts[changed].state == "correct" else "correct"
    store.add_problems(other, store.problems(key))
    store.add_responses(other, [sample.response for sample in samples])
    store.add_verdicts(other, verdicts | {changed: verdicts[changed]._replace(state=opposite)})
    for path in (run_dir.root / "credit").glob(f"{key}-*"):
        path.unlink()
    shade_changes(store, key, other, run_dir)
    assert remembered_credit(key, run_dir).keys() == {changed}


def test_equal_answers_to_a_problem_are_read_once(filled, monkeypatch):
    store, key, run_dir = filled
    other = store.add_cell({**store.cell(key).spec, "grader_version": "another"})
    first = store.samples(key)[0]
    store.add_problems(other, [first.problem])
    store.add_responses(other, [first.response, dataclasses.replace(first.response, repeat=1)])
    read = []
    monkeypatch.setattr(
        answer_credit,
        "credit_of_responses",
        lambda *arguments: read.extend(arguments[2]) or credit_of_responses(*arguments),
    )
    credit = credit_of_cell(store, other, run_dir)
    assert read == [first.response.text]
    assert len(credit) == 2
    assert len(set(credit.values())) == 1


def test_an_answer_to_another_prompt_than_todays_has_no_credit(filled):
    store, key, run_dir = filled
    spec = store.cell(key).spec | {"limit": 2}
    other = store.add_cell(spec)
    store.add_problems(other, store.problems(key)[:2])
    one, two = list(store.responses(key).values())[:2]
    store.add_responses(other, [one, dataclasses.replace(two, prompt_hash="of another text")])
    assert credit_of_cell(store, other, run_dir).keys() == {(one.problem_id, one.repeat)}


def test_a_model_that_is_gone_is_named_with_the_command_that_brings_it_back(filled):
    store, key, run_dir = filled
    other = store.add_cell(store.cell(key).spec | {"model_digest": "0" * 16})
    store.add_problems(other, store.problems(key)[:1])
    store.add_responses(other, list(store.responses(key).values())[:1])
    with pytest.raises(MissingDataError, match="evaluate mini --tasks mathvision_testmini --profile smoke --out"):
        credit_of_cell(store, other, run_dir)
    with pytest.raises(MissingDataError, match="no cell"):
        credit_of_cell(store, "unknown", run_dir)
