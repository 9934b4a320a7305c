"""One cell from start to end: with the shipped model, and with a tiny fake backend where bookkeeping is the matter."""

import shutil
from collections import Counter

import needs
import pytest
from fake_backend import picture, write_geoqa
from programs import printed

from atrl_bench.errors import AtrlBenchError, MissingDataError, UnknownNameError
from atrl_bench.evaluation import cell as cell_module
from atrl_bench.evaluation import cell_spec as cell_spec_module
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import CellSpec, Engine, EvaluationOptions, cell_spec, is_cell_done
from atrl_bench.evaluation.hooks import MEDIA_ROOT
from atrl_bench.evaluation.loop import plan_batches
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.models import local
from atrl_bench.models.bases import base_folder
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.profiles import load_profile
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.store import Store
from atrl_bench.sandbox.isolation import NOT_PERMITTED, PERMISSION

PROFILE = load_profile("smoke")
NUM_REPEATS = PROFILE.evaluation.num_repeats


def content(store: Store, key: str) -> list:
    """Everything a table can depend on: all but the seconds."""
    return [
        (s.problem, s.response.repeat, s.response.text, s.response.num_tokens, s.response.prompt_hash, s.verdict)
        for s in store.samples(key)
    ]


def test_every_problem_gets_every_repeat_once_and_a_verdict_and_nothing_reaches_the_terminal(
    store, backend, tmp_path, capfd
) -> None:
    data = write_geoqa(tmp_path / "data", [picture()] * 5)
    key = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    assert backend.asked == Counter({(str(place), repeat): 1 for place in range(5) for repeat in range(NUM_REPEATS)})
    # The n-th repeat answers n and the gold answer is 0, so the first is right and the others are wrong.
    assert [s.score for s in store.samples(key)] == [1.0, *[0.0] * (NUM_REPEATS - 1)] * 5
    cell = store.cell(key)
    assert (cell.state, cell.expected, cell.num_graded) == ("done", 5 * NUM_REPEATS, 5 * NUM_REPEATS)
    assert capfd.readouterr() == ("", "")


def test_the_longest_come_first_and_a_batch_of_shorter_ones_has_more_of_them() -> None:
    # Three letters a token and ten of the answer: 110 tokens a long row, 20 a short one, so 220 are 2 or 11 rows.
    texts = [*["x" * 30] * 14, *["x" * 300] * 3]
    batches = plan_batches(lambda _: {}, texts, [""] * 17, 2, 50176, 10)
    assert batches == [[16, 15], [14, 13], list(range(12, 1, -1)), [1, 0]]


def test_videos_are_all_as_long() -> None:
    batches = plan_batches(lambda _: {MEDIA_ROOT: "x"}, ["x" * 9, "x" * 90, "x"], ["b", "a", "b"], 2, 50176, 10)
    assert batches == [[2, 0], [1]]


def test_a_finished_cell_is_recognised_without_loading_anything(store, backend, tmp_path) -> None:
    data = write_geoqa(tmp_path / "data", [picture()] * 3)
    key = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    program = (
        "import sys; from pathlib import Path; from atrl_bench.evaluation.cell import evaluate;"
        "from atrl_bench.profiles import load_profile; from atrl_bench.results.store import Store;"
        f"key = evaluate('mini', 'geoqa_test', store=Store.open({str(store.path)!r}),"
        f" profile=load_profile('smoke'), data_dir=Path({str(data)!r}));"
        "print(key, sorted({'torch', 'datasets', 'lmms_eval'} & set(sys.modules)))"
    )
    assert printed("-c", program) == f"{key} []\n"


def test_a_killed_run_goes_on_where_it_was_and_ends_like_a_whole_one(store, mini_world, tmp_path, monkeypatch) -> None:
    sizes = PROFILE.evaluation.model_copy(update={"batch_size": 5, "temperature": 1.0})
    profile = PROFILE.model_copy(update={"evaluation": sizes})
    options, where = EvaluationOptions(limit=12), {"profile": profile, "data_dir": mini_world}

    with Store.open(tmp_path / "whole.sqlite") as whole:
        expected = content(whole, evaluate("mini", "mathvision_testmini", options, store=whole, **where))

    class KilledError(Exception):
        pass

    def kill_after_one_batch(kind: str, key: str, done: int, total: int) -> None:
        if done:
            raise KilledError

    monkeypatch.setattr(store, "heartbeat", kill_after_one_batch)
    with pytest.raises(KilledError):
        evaluate("mini", "mathvision_testmini", options, store=store, **where)
    (cell,) = store.cells()
    assert (cell.num_responses, cell.state) == (5 * NUM_REPEATS, "failed")

    seen: list[int] = []
    monkeypatch.setattr(store, "heartbeat", lambda kind, key, done, total: seen.append(done))
    key = evaluate("mini", "mathvision_testmini", options, store=store, **where)
    assert seen == [5 * NUM_REPEATS, 10 * NUM_REPEATS, 12 * NUM_REPEATS]
    assert content(store, key) == expected
    assert {s.verdict.state for s in store.samples(key)} <= {"correct", "wrong", "unparseable"}
    local.release()


def test_answers_that_were_stored_but_not_graded_are_graded_and_not_asked_again(
    store, backend, tmp_path, monkeypatch
) -> None:
    data = write_geoqa(tmp_path / "data", [picture()] * 2)
    with monkeypatch.context() as broken:
        broken.setattr(Store, "add_verdicts", lambda *_: (_ for _ in ()).throw(OSError("power cut")))
        with pytest.raises(OSError, match="power cut"):
            evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    key = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    assert set(backend.asked.values()) == {1}
    assert store.cell(key).num_graded == 2 * NUM_REPEATS


def test_of_two_commands_that_answer_at_once_verdict_and_progress_are_of_what_is_stored(
    store, backend, tmp_path, monkeypatch
) -> None:
    ours, right = backend.generate, "\\boxed{0}"

    def answer_after_another_command(prompts, repeats, sampling):
        (cell,) = store.cells()
        store.add_responses(cell.key, [Response("0", n, "hash", right, 3, 0.0, False) for n in range(NUM_REPEATS)])
        return ours(prompts, repeats, sampling)  # of which all but the first are wrong

    monkeypatch.setattr(backend, "generate", answer_after_another_command)
    data = write_geoqa(tmp_path / "data", [picture()])
    key = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    assert [(s.response.text, s.score) for s in store.samples(key)] == [(right, 1.0)] * NUM_REPEATS
    assert [(beat.done, beat.total) for beat in store.progress()] == [(NUM_REPEATS, NUM_REPEATS)]


def test_a_program_that_might_not_run_is_graded_once_it_may_and_its_answer_stays(
    store, backend, tmp_path, monkeypatch
) -> None:
    monkeypatch.delenv(PERMISSION, raising=False)
    data = write_geoqa(tmp_path / "data", [picture()] * 2)
    key = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    store.add_verdicts(key, {("0", 0): Verdict("judge failed", "0", "mega", NOT_PERMITTED)})
    store.add_verdicts(key, {("1", 0): Verdict("judge failed", "0", "mega", "needs a gazetteer")})
    asked = backend.asked.total()

    def states():
        evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
        return [sample.verdict.state for sample in store.samples(key) if sample.response.repeat == 0]

    assert states() == ["judge failed"] * 2
    monkeypatch.setenv(PERMISSION, "1")
    assert not is_cell_done(store, key, None)
    assert states() == ["correct"] * 2
    assert is_cell_done(store, key, None)
    assert backend.asked.total() == asked


def test_another_grader_takes_the_answers_over(store, backend, tmp_path, monkeypatch) -> None:
    data = write_geoqa(tmp_path / "data", [picture()] * 2)
    old = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    monkeypatch.setattr(cell_spec_module, "GRADER_VERSION", "another")
    new = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    assert new != old
    assert set(backend.asked.values()) == {1}
    assert content(store, new) == content(store, old)


def test_a_renamed_model_folder_is_asked_nothing_again(store, backend, tmp_path) -> None:
    data = write_geoqa(tmp_path / "data", [picture()] * 2)
    old = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    shutil.copytree(base_folder("mini"), tmp_path / "renamed")
    new = evaluate(tmp_path / "renamed", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    assert store.cell(new).spec["model_name"] == "renamed"
    assert set(backend.asked.values()) == {1}
    assert content(store, new) == content(store, old)


@needs.mathruler
def test_a_published_rule_grades_the_answers_that_are_there_and_ours_stays_beside_it(store, backend, tmp_path) -> None:
    data = write_geoqa(tmp_path / "data", [picture()])
    ours = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    asked = PROFILE.evaluating({"grader": "mathruler"})
    theirs = evaluate("mini", "geoqa_test", store=store, profile=asked, data_dir=data)
    assert backend.asked.total() == NUM_REPEATS
    assert {sample.verdict.grader for sample in store.samples(ours)} == {"fast"}
    assert {sample.verdict.grader for sample in store.samples(theirs)} == {"mathruler"}
    assert len(of_one_judge(store.cells(kind="evaluation"), None)) == 2


def test_a_published_rule_that_is_not_installed_is_asked_for_before_any_answer(
    store, backend, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(cell_module, "version", lambda name: "0.0.9")
    data, asked = write_geoqa(tmp_path / "data", [picture()]), PROFILE.evaluating({"grader": "mathruler"})
    with pytest.raises(AtrlBenchError, match=r"graded by mathruler 0.1.0; installed is 0.0.9"):
        evaluate("mini", "geoqa_test", store=store, profile=asked, data_dir=data)
    assert backend.asked.total() == 0


def store_one_answer(store: Store, spec: CellSpec) -> str:
    key = store.add_cell(spec.as_dict())
    store.add_problems(key, [Problem("0", "0", "Question 0", Gold("0"))])
    store.add_responses(key, [Response("0", 0, "hash", "\\boxed{0}", 3, 0.0, False)])
    return key


def test_of_a_problem_with_some_of_its_answers_the_others_are_asked_for(store, backend, tmp_path) -> None:
    data = write_geoqa(tmp_path / "data", [picture()] * 2)
    key = store_one_answer(store, cell_spec("mini", "geoqa_test", profile=PROFILE, data_dir=data))
    evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=data)
    assert ("0", 0) not in backend.asked
    assert len(store.samples(key)) == 2 * NUM_REPEATS == backend.asked.total() + 1


def test_the_answers_of_an_engine_are_not_taken_over_by_a_cell_without_one(store, backend, tmp_path) -> None:
    data = write_geoqa(tmp_path / "data", [picture()])
    where = {"profile": PROFILE, "data_dir": data}
    served = EvaluationOptions(engine=Engine("vllm", "1"), endpoint=EndpointConfig("http://here/v1", "mini"))
    store_one_answer(store, cell_spec("mini", "geoqa_test", served, **where))
    evaluate("mini", "geoqa_test", store=store, **where)
    assert backend.asked.total() == NUM_REPEATS


def test_a_row_with_a_broken_image_is_skipped_named_and_left_out_of_the_count(store, backend, tmp_path) -> None:
    whole = picture()
    images = [whole] * 100  # one in a hundred is no more than that
    images[7] = whole[: len(whole) // 2]  # truncated
    key = evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=write_geoqa(tmp_path / "data", images))
    assert list(store.skipped(key)) == ["7"]
    assert store.cell(key).expected == 99 * NUM_REPEATS == len(store.samples(key))


def test_missing_data_and_unknown_tasks_say_what_to_do(store, tmp_path) -> None:
    with pytest.raises(MissingDataError, match="atrl-bench fetch geoqa_test"):
        evaluate("mini", "geoqa_test", store=store, profile=PROFILE, data_dir=tmp_path)
    with pytest.raises(UnknownNameError, match="Did you mean geoqa_test"):
        evaluate("mini", "geoqa_tset", store=store, profile=PROFILE, data_dir=tmp_path)
    assert store.cells() == []


def test_whatever_can_change_the_number_changes_the_key(tmp_path) -> None:
    data = write_geoqa(tmp_path / "data", [picture()] * 2)
    other = write_geoqa(tmp_path / "other", [picture()] * 3)
    sizes = PROFILE.evaluation.model_copy(update={"temperature": 0.7})
    hot = PROFILE.model_copy(update={"evaluation": sizes})
    base = {"profile": PROFILE, "data_dir": data}
    specs = [
        cell_spec("mini", "geoqa_test", **base),
        cell_spec("mini", "geoqa_test", EvaluationOptions(run_seed=1), **base),
        cell_spec("mini", "geoqa_test", EvaluationOptions(repeats=8), **base),
        cell_spec("mini", "geoqa_test", EvaluationOptions(limit=1), **base),
        cell_spec("mini", "geoqa_test", profile=hot, data_dir=data),
        cell_spec("mini", "geoqa_test", profile=PROFILE, data_dir=other),
    ]
    assert len({spec.key for spec in specs}) == len(specs)
    assert cell_spec("mini", "geoqa_test", **base) == specs[0]


def test_an_evaluation_needs_no_lmms_eval(tmp_path) -> None:
    data = write_geoqa(tmp_path / "data", [picture()] * 2)
    program = (
        "import sys; from pathlib import Path; sys.modules['lmms_eval'] = None;"  # importing it is an error
        "from atrl_bench.evaluation.cell import evaluate;"
        "from atrl_bench.profiles import load_profile; from atrl_bench.results.store import Store;"
        f"store, data = Store.open({str(tmp_path / 'store.sqlite')!r}), Path({str(data)!r});"
        "key = evaluate('mini', 'geoqa_test', store=store, profile=load_profile('smoke'), data_dir=data);"
        "print(store.cell(key).state)"
    )
    assert printed("-c", program) == "done\n"
