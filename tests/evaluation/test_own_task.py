"""A benchmark that is a table of the user's own: what is read of it, how it is graded, what names it."""

import base64
import codecs
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from atrl_bench.data.own import with_columns
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.evaluation.cell_spec import EvaluationOptions, cell_spec
from atrl_bench.evaluation.data import load_rows, read_problems
from atrl_bench.evaluation.prompts_for import UnreadableRow, prompts_for, shown_instead
from atrl_bench.evaluation.tasks import expand, find_task
from atrl_bench.grading.grade import grade
from atrl_bench.mini.benchmarks.dataset import png
from atrl_bench.mini.videos import encode
from atrl_bench.profiles import load_profile
from atrl_bench.training.data import load_training_data

SMOKE = load_profile("smoke")
RED = Image.new("RGB", (40, 30), "red")
SHOWN = {"type": "image_url", "image_url": {"url": "pictures/red.png"}}


@pytest.fixture
def mine(tmp_path):
    """Return a function that writes rows as JSON lines beside a red picture, and gives the path."""
    (tmp_path / "pictures").mkdir()
    RED.save(tmp_path / "pictures" / "red.png")

    def write(*rows: dict[str, object]) -> str:
        (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(tmp_path / "mine.jsonl")

    return write


def problems_of(name, image=None):
    [task] = expand([name])
    rows, problems, unreadable = read_problems(task, load_rows(task, None))
    spec = cell_spec("mini", task.name, EvaluationOptions(image=image), profile=SMOKE, data_dir=None)
    return problems, list(prompts_for(task, rows, spec, shown_instead(task, problems, rows, spec))), unreadable


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        ({"answer": "B", "options": ["red", "blue"]}, r"\boxed{B}", r"\boxed{A}"),
        ({"answer": "blue", "choices": ["A. red", "B. blue"]}, "The answer is (B) blue.", "The answer is red."),
        ({"answer": "A", "A": "red", "B": "blue", "C": None}, r"\boxed{red}", r"\boxed{B}"),
        ({"answer": 12.5}, r"\boxed{12.5 cm}", r"\boxed{12}"),
        ({"answer": "a red car"}, r"\boxed{a red car}", r"\boxed{a blue car}"),
        ({"answer": "Yes"}, "The answer is yes.", "The answer is no."),
        ({"answer": True}, r"\boxed{yes}", r"\boxed{No}"),
        ({"answer": ["grey", "gray"]}, r"\boxed{gray}", r"\boxed{green}"),
        ({"answer": "B) 4", "options": ["(A) 3", "(B) 4"]}, r"\boxed{4}", r"\boxed{3}"),
        ({"answer": "E. coli", "options": ["C. elegans", "E. coli"]}, r"\boxed{B}", r"\boxed{A}"),
        ({"answer": "B", "options": {"B": "blue", "A": "red"}}, r"\boxed{blue}", r"\boxed{red}"),
        ({"answer": "F", "options": [f"x{n}" for n in range(16)]}, r"\boxed{x5}", r"\boxed{x4}"),
        ({"answer": 10**20}, r"\boxed{10^{20}}", r"\boxed{10^{19}}"),
    ],
)
def test_an_answer_says_how_it_is_graded_and_a_training_rewards_the_same(row, right, wrong, mine) -> None:
    name = mine({"question": "What is it?", **row})
    [problem], _, _ = problems_of(name)
    [trained_on] = load_training_data(name, None).problems
    for gold in (problem.gold, trained_on.graded_as):
        assert grade(right, gold).state == "correct"
        assert grade(wrong, gold).state == "wrong"


def test_rows_of_one_file_may_write_answers_options_and_pictures_differently(mine) -> None:
    rows = [
        {"answer": ["grey", "gray"], "options": None, "image": "pictures/red.png"},
        {"answer": "B", "options": {"A": "3", "B": "4"}, "image": ["pictures/red.png"] * 2},
        {"answer": "4", "options": ["3", "4", "5"]},
        {"answer": "4", "options": "A. 3, B. 4"},
    ]
    path = mine(*({"question": "2 + 2?"} | row for row in rows))
    Path(path).write_bytes(codecs.BOM_UTF8 + Path(path).read_bytes())
    problems, prompts, [row] = problems_of(path)
    assert [grade(r"\boxed{gray}", problem.gold).state for problem in problems] == ["correct", "wrong", "wrong"]
    assert [problem.gold.choices for problem in problems] == [(), ("3", "4"), ("3", "4", "5")]
    assert [len(prompt.images) for prompt in prompts] == [1, 2, 0]
    assert row.reason == "ValueError: its options 'A. 3, B. 4' are no list of texts"


def test_pictures_stand_where_the_question_names_them_and_a_system_turn_stays(mine) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is <image> like this?"}]
    rows = [
        {"question": "What colour?", "image": "pictures/red.png", "answer": "red"},
        {"question": turns, "image": "pictures/red.png", "answer": "yes"},
    ]
    _, (before, within), _ = problems_of(mine(*rows))
    assert [part["type"] for part in before.messages[0]["content"]] == ["image", "text"]
    assert (before.images[0].size, before.images[0].getpixel((0, 0))) == ((40, 30), (255, 0, 0))
    system, user = within.messages
    assert system["content"][0]["text"] == "Be brief."
    assert [part["type"] for part in user["content"]] == ["text", "image", "text"]


def test_a_tsv_as_vlmevalkit_writes_it_and_a_parquet_file_with_pictures_are_read(tmp_path) -> None:
    encoded = base64.b64encode(png(Image.effect_noise((40, 30), 50))).decode()
    lines = ["index\tquestion\tA\tB\tanswer\timage", f"1\tWhich?\tred\tblue\tB\t{encoded}", "2\tAnd now?\tx\ty\tA\t1"]
    (tmp_path / "mine.tsv").write_text("\n".join(lines) + "\n")
    problems, prompts, _ = problems_of(str(tmp_path / "mine.tsv"))
    assert [problem.problem_id for problem in problems] == ["1", "2"]
    assert problems[0].gold.choices == ("red", "blue")
    assert prompts[0].images[0].tobytes() == prompts[1].images[0].tobytes()
    cells = 2 * [{"bytes": png(RED), "path": None}]
    pq.write_table(pa.table({"prompt": ["What colour?"], "gold": ["red"], "images": [cells]}), tmp_path / "m.parquet")
    _, [prompt], _ = problems_of(str(tmp_path / "m.parquet"))
    assert [image.size for image in prompt.images] == 2 * [(40, 30)]


def test_pictures_in_base64_or_data_urls_beside_paths_are_shown_to_a_model_and_to_a_training(mine) -> None:
    encoded = base64.encodebytes(png(Image.effect_noise((40, 30), 50))).decode()
    shown = ["pictures/red.png", encoded, f"data:image/png;base64,{base64.b64encode(png(RED)).decode()}"]
    name = mine({"question": "What?", "answer": "red", "images": shown})
    _, [prompt], _ = problems_of(name)
    [trained_on] = load_training_data(name, None).problems
    for first, second, third in (prompt.images, trained_on.decoded()):
        assert (first.tobytes(), second.size, third.tobytes()) == (RED.tobytes(), (40, 30), RED.tobytes())


@pytest.mark.parametrize("shown", [{"image_url": "pictures/red.png"}, {"image": {"path": "pictures/red.png"}}])
def test_a_picture_is_shown_that_is_a_path_alone_or_called_as_the_chat_protocol_does(shown, mine) -> None:
    turns = [{"role": "user", "content": [{"type": "text", "text": "Is "}, {"type": "image_url"}]}]
    _, [prompt], _ = problems_of(mine({"question": turns, "answer": "red", **shown}))
    assert [part["type"] for part in prompt.messages[0]["content"]][:2] == ["text", "image"]
    assert prompt.images[0].tobytes() == RED.tobytes()


def turn(*parts, role="user"):
    return {
        "role": role,
        "content": [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts],
    }


def test_pictures_within_a_conversation_are_shown_in_their_order_and_are_in_the_key(mine, tmp_path) -> None:
    blue = Image.new("RGB", (20, 10), "blue")
    url = f"data:image/png;base64,{base64.b64encode(png(blue)).decode()}"
    embedded, file = ({"type": "image_url", "image_url": {"url": where}} for where in (url, "pictures/red.png"))
    asked = [
        turn("Be brief.", role="system"),
        turn("Is ", embedded, " smaller than ", file, "?"),
        turn("Yes", role="assistant"),
    ]
    name = mine({"messages": asked}, {"messages": [turn("2 + 2?"), turn("4", role="assistant")]})
    problems, [prompt, words], _ = problems_of(name)
    [trained_on, _] = load_training_data(name, None).problems
    kinds = [part["type"] for part in prompt.messages[1]["content"]]
    assert kinds[-5:] == ["text", "image", "text", "image", "text"]
    assert (problems[0].gold.answer, words.images) == ("Yes", [])
    for first, second in (prompt.images, trained_on.decoded()):
        assert (first.tobytes(), second.tobytes()) == (blue.tobytes(), RED.tobytes())

    def key():
        return cell_spec("mini", name, profile=SMOKE, data_dir=None).key

    before = key()
    Image.new("RGB", (40, 30), "green").save(tmp_path / "pictures" / "red.png")
    assert key() != before


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [turn("What?"), turn(SHOWN, "And this?")]}, "an image that is not in the user's first turn"),
        (
            {"messages": [turn(SHOWN, "What?")], "image": "pictures/a.png"},
            "images of its conversation are not those of",
        ),
        (
            {"messages": [turn({"type": "video_url", "video_url": {"url": "a.mp4"}}, "What?")]},
            "videos of its conversation",
        ),
        ({"messages": [turn({"type": "image_url", "image_url": "../red.png"}, "What?")]}, "outside"),
    ],
)
def test_a_row_whose_conversation_shows_what_cannot_be_shown_is_refused_and_says_why(row, reason, mine) -> None:
    good = {"messages": [turn(SHOWN, "What?")], "image": "pictures/red.png", "answer": "red"}
    _, [shown, *prompts], unreadable = problems_of(mine(good, {"answer": "red", **row}))
    assert len(shown.images) == 1
    [refused] = [*prompts, *unreadable]
    assert reason in refused.reason


def test_a_column_may_embed_the_pictures_that_a_conversation_names(mine) -> None:
    url = f"data:image/png;base64,{base64.b64encode(png(RED)).decode()}"
    there = {"type": "image_url", "image_url": "once/was/here.png"}
    _, [prompt], _ = problems_of(mine({"messages": [turn(there, "What?")], "image": url, "answer": "red"}))
    assert prompt.images[0].tobytes() == RED.tobytes()


@pytest.mark.parametrize("content", [{"question": ["2 + 2?"], "answer": ["4"]}, ["2 + 2?"]])
def test_a_json_file_that_is_no_list_of_rows_is_said_to_be_none(content, tmp_path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(content))
    with pytest.raises(InvalidFileError, match="no list of rows, each an object with its columns"):
        problems_of(str(tmp_path / "mine.json"))


def test_a_picture_outside_the_files_folder_is_not_opened(mine, tmp_path) -> None:
    RED.save(tmp_path.parent / "secret.png")
    rows = [{"question": "What?", "image": name, "answer": "red"} for name in ("../secret.png", "https://a/b.png")]
    with pytest.raises(MissingDataError, match="no row may name what lies outside"):
        problems_of(mine(*rows))
    _, (good, *bad), _ = problems_of(mine(rows[0] | {"image": "pictures/red.png"}, *rows))
    assert good.images
    assert all(isinstance(prompt, UnreadableRow) for prompt in bad)


def test_shuffled_pictures_keep_their_size_and_are_shown_neither_for_a_video_nor_beside_words_alone(mine, tmp_path):
    shown = []
    for number, side in enumerate([40, 41, 400, 401]):
        Image.new("RGB", (side, 30), "red").save(tmp_path / f"{side}.png")
        (tmp_path / f"{number}.mp4").write_bytes(encode(np.full((4, 32, 32, 3), number, np.uint8), 2))
        shown += [{"image": f"{side}.png"}, {"video": f"{number}.mp4"}, {}]
    rows = [{"question": "What is it?", "answer": 1, **one} for one in shown]
    _, prompts, _ = problems_of(mine(*rows), image="shuffled")
    assert [[picture.width for picture in prompt.images] for prompt in prompts[::3]] == [[41], [40], [401], [400]]
    assert [(len(prompt.images), len(prompt.videos)) for prompt in prompts] == 4 * [(1, 0), (0, 1), (0, 0)]
    words = "".join(prompt.messages[0]["content"][-1]["text"] for prompt in prompts if prompt.images)
    assert ("the image" in words, "the video" in words) == (True, False)


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["red", "blue"], "neither a letter of its options nor one of them"), (list("abcdefghijklmnopq"), "17 options")],
)
def test_a_row_whose_answer_is_none_of_its_options_or_that_has_too_many_is_named(mine, options, reason) -> None:
    _, _, [row] = problems_of(mine({"id": "q9", "question": "Which?", "options": options, "answer": "2"}))
    assert (row.problem_id, reason in row.reason) == ("q9", True)


@pytest.mark.parametrize("kind", ["JSON", "JSONL", "Tsv", "CSV", "PARQUET"])
def test_a_file_whose_ending_is_in_capitals_is_what_it_is(kind, tmp_path, monkeypatch) -> None:
    row = {"question": "2 + 2?", "answer": "4"}
    texts = {"JSON": json.dumps([row]), "JSONL": json.dumps(row), "CSV": "question,answer\n2 + 2?,4\n"}
    (tmp_path / f"mine.{kind}").write_text(texts.get(kind, "question\tanswer\n2 + 2?\t4\n"))
    if kind == "PARQUET":
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "mine.PARQUET")
    monkeypatch.chdir(tmp_path)
    [problem], _, _ = problems_of(f"mine.{kind}")
    assert (problem.question, problem.gold.answer) == ("2 + 2?", "4")
    [trained_on] = load_training_data(str(tmp_path), None).problems
    assert trained_on.answer == "4"


def test_columns_of_other_names_are_said_and_what_is_missing_is_named(mine) -> None:
    path = mine({"asked": "What is 2 + 2?", "right": 4})
    with pytest.raises(InvalidFileError, match="no column that is known to be the question"):
        problems_of(path)
    [problem], _, _ = problems_of(with_columns(path, "question=asked,answer=right"))
    assert (problem.question, problem.gold.answer) == ("What is 2 + 2?", "4")
    spec = cell_spec("mini", with_columns(path, "question=asked,answer=right"), profile=SMOKE, data_dir=None)
    assert (spec.task, spec.task_version) == ("mine.jsonl", "own2.1?question=asked&answer=right")


def test_a_cell_is_named_by_the_files_contents_and_its_pictures_and_never_by_its_folder(mine, tmp_path) -> None:
    path = mine({"question": "What colour?", "image": "pictures/red.png", "answer": "red"})

    def key(name):
        return cell_spec("mini", name, profile=SMOKE, data_dir=None).key

    first, elsewhere = key(path), shutil.copytree(tmp_path, tmp_path / "elsewhere")
    assert key(str(elsewhere / "mine.jsonl")) == first
    Image.new("RGB", (40, 30), "blue").save(tmp_path / "pictures" / "red.png")
    assert key(path) != first
    stored = find_task("mine.jsonl")  # without the file: what a page says of its answers
    assert (stored.title, stored.headline(4), stored.code.statistics) == ("mine.jsonl", "mean@4", {})
