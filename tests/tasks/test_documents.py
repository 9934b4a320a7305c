"""ChartQAPro, TextVQA and InfoVQA: their rows as the hub has them, and what is known to go wrong with those."""

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_backend import picture

from atrl_bench.cli.printing import text_of
from atrl_bench.data.dataset import table_files
from atrl_bench.evaluation.data import load_rows, to_problem, without_images
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.evaluate_command import ModelScores, task_scores
from atrl_bench.grading.grade import grade
from atrl_bench.results.records import Response
from atrl_bench.results.store import Store

NAMES = ["chartqapro_test", "infovqa_val", "textvqa_val"]
CHART, INFO, TEXT = (find_task(name).module for name in NAMES)


def chart_row(**changes: object) -> dict[str, object]:
    row = {
        "Question": ["What is the share of Asia?"],
        "Answer": ["54.3"],
        "Question Type": "Factoid",
        "Year": ["NO"],
        "Paragraph": "",
        "row_number": 0,
        "chart": "c",
    }
    return {**row, **changes}


def boxed(answer: str) -> str:
    return f"I read it off. The answer is \\boxed{{{answer}}}."


# Rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "types"),
    [
        (
            "chartqapro_test",
            {"Question": pa.list_(pa.string()), "Answer": pa.list_(pa.string()), "Question Type": pa.string(),
             "image": pa.binary(), "Year": pa.list_(pa.string()), "Paragraph": pa.string()},
        ),
        (
            "textvqa_val",
            {"image_id": pa.string(), "question": pa.string(), "answers": pa.list_(pa.string()),
             "image": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "ocr_tokens": pa.list_(pa.string())},
        ),
        (
            "infovqa_val",
            {"questionId": pa.string(), "question": pa.string(), "answers": pa.list_(pa.string()),
             "answer_type": pa.list_(pa.string()), "image": pa.struct({"bytes": pa.binary(), "path": pa.string()}),
             "ocr": pa.string()},
        ),
    ],
)  # fmt: skip
def test_a_synthetic_benchmark_s_columns_have_the_types_of_the_published_dataset(name, types, mini_world) -> None:
    schema = pq.read_schema(table_files(find_task(name), mini_world)[0])
    assert {column: schema.field(column).type for column in types} == types


@pytest.mark.parametrize("typed", [False, True])
def test_a_chart_opens_whether_its_column_has_the_type_of_an_image_or_only_bytes(typed, tmp_path) -> None:
    rows = [chart_row(image=picture(colour)) for colour in ("red", "red", "blue")]
    table = datasets.Dataset.from_list(rows).remove_columns(["row_number", "chart"])
    assert table.features["image"] == datasets.Value("binary")
    table = table.cast_column("image", datasets.Image()) if typed else table
    (tmp_path / "chartqapro" / "data").mkdir(parents=True)
    table.to_parquet(tmp_path / "chartqapro" / "data" / "test-00000-of-00001.parquet")
    loaded = load_rows(find_task("chartqapro_test"), tmp_path)
    assert [CHART.images(row)[0].getpixel((0, 0)) for row in loaded] == [(255, 0, 0), (255, 0, 0), (0, 0, 255)]
    groups = [CHART.group(row) for row in without_images(loaded)]
    assert groups[0] == groups[1] != groups[2]  # questions about one chart are one cluster


# ChartQAPro -------------------------------------------------------------------------------------------------------


def test_a_conversation_shows_its_earlier_answers_and_asks_only_the_last_turn() -> None:
    row = chart_row(
        **{"Question Type": "Conversational"},
        Question=["Which region leads?", "And second?", "By how much?"],
        Answer=["Asia", "Europe", "7.5"],
        Year=["NO", "NO", "NO"],
        Paragraph="A survey of 2014.",
    )
    text = CHART.question(row)
    parts = ["A survey of 2014.", "Which region leads?", "Asia", "And second?", "Europe", "By how much?"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "7.5" not in text
    assert CHART.gold(row).answer == "7.5"


def test_a_conversation_is_scored_by_the_flag_of_its_last_turn() -> None:
    row = chart_row(
        **{"Question Type": "Conversational"},
        Question=["When?", "How many?"],
        Answer=["2014", "100"],
        Year=["YES", "NO"],
    )
    assert grade(boxed("104"), CHART.gold(row)).state == "correct"
    row["Year"] = ["NO", "YES"]
    assert grade(boxed("104"), CHART.gold(row)).state == "wrong"


@pytest.mark.parametrize("kind", ["Fact Checking", "Multi Choice"])
def test_the_types_with_exact_answers_give_nothing_for_a_similar_one(kind) -> None:
    gold = CHART.gold(chart_row(**{"Question Type": kind}, Answer=["Refutes"]))
    assert grade(boxed("refutes"), gold).state == "correct"
    near = grade(boxed("refute"), gold)
    assert near.score == 0
    assert near.details["official"] == pytest.approx(6 / 7)


def test_a_gold_ends_without_its_full_stop_and_a_missing_flag_is_no_flag() -> None:
    gold = CHART.gold(chart_row(Answer=["Germany."], Year=None))
    assert gold.answer == "Germany"
    assert grade(boxed("Germany."), gold).state == "correct"


def test_the_official_variant_is_reported_beside_the_score_and_each_type_by_itself(tmp_path) -> None:
    info = find_task("chartqapro_test")
    rows = [
        chart_row(row_number=0, chart="a", **{"Question Type": "Fact Checking"}, Answer=["Likely"]),
        chart_row(row_number=1, chart="b", Answer=["100"]),
        chart_row(row_number=2, chart="c", Answer=["7"]),
    ]
    answers = [boxed("Unlikely"), boxed("104"), ""]
    with Store.open(tmp_path / "store.sqlite") as store:
        key = store.add_cell({"kind": "evaluation", "task": info.name})
        store.add_problems(key, [to_problem(info, row) for row in rows])
        store.add_responses(key, [Response(str(n), 0, "", answer, 1, 0.0, False) for n, answer in enumerate(answers)])
        verdicts = [grade(answer, CHART.gold(row)) for row, answer in zip(rows, answers, strict=True)]
        store.add_verdicts(key, {(str(n), 0): verdict for n, verdict in enumerate(verdicts)})
        record = task_scores(store, key, info.name)
    assert record.scores["acc@1"].mean == pytest.approx(1 / 3)
    assert record.variants["official"].mean == pytest.approx((0.75 + 1) / 3)
    by_type = record.by["Question Type"]
    assert {name: part.mean for name, part in by_type.items()} == {"Fact Checking": 0, "Factoid": 0.5}
    assert "official" in text_of(ModelScores((record,)))


# TextVQA and InfoVQA ----------------------------------------------------------------------------------------------


def camera_row(answers: list[str]) -> dict[str, object]:
    return {
        "image_id": "i",
        "question_id": 1,
        "question": "What does the NASA sign in Houston say?",
        "answers": answers,
    }


def test_the_question_keeps_the_capitals_of_its_names() -> None:
    # "…".capitalize() makes "What does the nasa sign in houston say?" of it.
    assert "NASA sign in Houston" in TEXT.question(camera_row(["x"] * 10))


def test_several_responses_are_all_scored_and_the_row_stays_as_it_was() -> None:
    row = camera_row(["Nokia"] * 4 + ["Lumia"] * 2 + ["a", "b", "c", "d"])
    before = [*row["answers"]]
    scores = TEXT.process_results(
        row, [boxed("nokia"), boxed("Lumia"), boxed("nothing"), "It says Nokia, I would think."]
    )
    # 1, then 8/10 · 2/3 + 2/10 · 1/3 = 0.6, then nothing twice.
    assert scores["mean_at_n"]["score"] == pytest.approx((1 + 0.6) / 4)
    assert row["answers"] == before


def test_where_annotators_disagree_even_the_gold_gets_what_they_agree_on() -> None:
    gold = TEXT.gold(camera_row([f"answer {letter}" for letter in "bcdefghijk"]))
    verdict = grade(boxed(gold.answer), gold)
    assert verdict.score == pytest.approx(0.3)
    assert verdict.state == "wrong"


def test_any_accepted_answer_is_a_full_point() -> None:
    row = {
        "questionId": "1",
        "question": "What share?",
        "answers": ["94%", "94 percent"],
        "answer_type": ["single span"],
    }
    for answer in (r"94\%", "94 Percent"):
        assert grade(boxed(answer), INFO.gold(row)).state == "correct"
    assert grade(boxed("95%"), INFO.gold(row)).score == pytest.approx(2 / 3)
