"""A user's own training set: what its columns are called, what its rows show, and what is said of a bad one."""

import json
import math

import fake_backend
import pyarrow
import pyarrow.parquet
import pytest
from hub_layouts import packed
from local_hub import NOBODY, Machine, run
from PIL import Image
from programs import printed

from atrl_bench.data.dataset import data_digest
from atrl_bench.data.own import answers_of, resolved, with_columns
from atrl_bench.data.sets import find_set
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.training.data import load_training_data
from atrl_bench.training.recipe import load_recipe

MAPPED = "question=asked,answer=gold,image=shown"
RED = fake_backend.picture("red", (28, 28))


@pytest.fixture
def picture(tmp_path):
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (28, 28), "red").save(tmp_path / "pictures" / "1.png")
    return "pictures/1.png"


def written(path, rows):
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)


def problems(name):
    return load_training_data(name, None).problems


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
def test_a_file_is_read_by_the_usual_names_of_its_columns(tmp_path, picture, suffix):
    rows = [{"question": "How many?", "answer": 7, "image": picture, "level": 3}, {"question": "2 + 2?", "answer": 4}]
    name = written(tmp_path / f"mine{suffix}", rows)
    shown, text = problems(name)
    assert (shown.question, shown.answer, shown.columns["level"]) == ("How many?", "7", 3)
    assert shown.images == (tmp_path / picture,)
    assert shown.decoded()[0].size == (28, 28)
    assert (text.question, text.answer, text.images) == ("2 + 2?", "4", ())
    assert find_set(name).num_rows == 2


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_the_first_line_of_a_csv_says_what_separates_its_columns(tmp_path, mark):
    (path := tmp_path / "mine.csv").write_text(f'\ufeffquestion{mark}answer\n"1, 2; 3\tor 4?"{mark}"3;5"\n')
    [problem] = problems(str(path))
    assert (problem.question, problem.answer) == ("1, 2; 3\tor 4?", "3;5")


def test_columns_of_other_names_are_mapped_and_the_key_follows_the_contents_and_not_the_folder(tmp_path, picture):
    rows = [{"asked": "How many?", "gold": "7", "shown": [picture], "options": ["6", "7"]}]
    name = with_columns(written(tmp_path / "mine.jsonl", rows), MAPPED)
    [problem] = problems(name)
    assert problem.question == "How many?\nChoices:\n(A) 6\n(B) 7"
    assert problem.images == (tmp_path / picture,)
    before = data_digest(find_set(name), None)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pictures").symlink_to(tmp_path / "pictures")
    written(tmp_path / "pictures" / "mine.jsonl", [{**rows[0], "shown": ["1.png"]}])
    Image.new("RGB", (28, 28), "blue").save(tmp_path / picture)
    assert data_digest(find_set(name), None) != before, "the picture counts, too"


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
def test_a_column_that_the_first_row_leaves_empty_is_read_all_the_same(tmp_path, picture, suffix):
    rows = [{"question": "2 + 2?", "answer": "4"}, {"question": "How many?", "answer": "7", "image": picture}]
    if suffix == ".parquet":
        rows[0]["image"] = None
    name = written(tmp_path / f"mine{suffix}", rows)
    assert [problem.images for problem in problems(name)] == [(), (tmp_path / picture,)]
    before = data_digest(find_set(name), None)
    Image.new("RGB", (28, 28), "blue").save(tmp_path / picture)
    assert data_digest(find_set(name), None) != before


@pytest.mark.parametrize("is_published", [False, True])
def test_a_picture_that_a_cell_names_in_place_of_its_bytes_is_in_the_key(tmp_path, picture, is_published):
    """As `datasets` writes a column of images that it has not embedded."""
    folder = (tmp_path / "pictures").rename(tmp_path / "geoqa")
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    shown = pyarrow.array([{"bytes": None, "path": "1.png"}], kind)
    table, name = pyarrow.table({"question": ["How many?"], "answer": ["7"], "image": shown}), folder / "test.parquet"
    pyarrow.parquet.write_table(table, name)
    where = (find_task("geoqa_test"), tmp_path) if is_published else (find_set(str(name)), None)
    before = data_digest(*where)
    Image.new("RGB", (28, 28), "blue").save(folder / "1.png")
    assert data_digest(*where) != before


def test_answers_of_numbers_and_of_words_are_what_they_are(tmp_path):
    rows = [{"question": "2 + 2?", "answer": 4}, {"question": "Which?", "answer": "x + 1"}]
    assert [problem.answer for problem in problems(written(tmp_path / "mine.jsonl", rows))] == ["4", "x + 1"]
    assert answers_of(math.nan) == answers_of(None) == [""], "as pandas and json.dumps write what is not there"


def test_conversations_of_trl_verl_and_llava_are_questions_with_their_answers(tmp_path):
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is 3 + 4?"}]},
    ]
    [verl] = problems(written(tmp_path / "verl.jsonl", [{"prompt": said, "reward_model": {"ground_truth": "7"}}]))
    assert (verl.question, verl.answer) == ("What is 3 + 4?", "7")
    assert [turn["role"] for turn in verl.messages(0)] == ["system", "user"]
    turns = [{"from": "human", "value": "What is 3 + 4?"}, {"from": "gpt", "value": "7"}]
    [llava] = problems(written(tmp_path / "llava.jsonl", [{"conversations": turns}]))
    assert (llava.question, llava.answer, llava.system) == ("What is 3 + 4?", "7", "")


def test_a_conversation_that_a_table_keeps_as_json_is_parsed_once(tmp_path, monkeypatch):
    said = [{"role": "user", "content": [{"type": "text", "text": "3 + 4?"}]}, {"role": "assistant", "content": "7"}]
    name, loads, parsed = written(tmp_path / "mine.jsonl", [{"messages": said}]), json.loads, []
    monkeypatch.setattr(json, "loads", lambda text, **options: parsed.append(text) or loads(text, **options))
    assert problems(name)[0].answer == "7"
    assert sum(text.startswith("[{") for text in parsed) == 1


def test_a_folder_has_one_table_or_those_of_its_training_split(tmp_path):
    row = {"question": "2 + 2?", "answer": "4"}
    for number in (1, 2):
        written(tmp_path / f"train-{number}.jsonl", [row])
    written(tmp_path / "test.jsonl", [row])
    assert len(problems(str(tmp_path))) == 2
    written(tmp_path / "one.jsonl", [row])
    for number in (1, 2):
        (tmp_path / f"train-{number}.jsonl").unlink()
    with pytest.raises(MissingDataError, match="not clear which table"):
        find_set(str(tmp_path))


def test_a_folder_of_pictures_with_their_metadata_shows_them(tmp_path):
    Image.new("RGB", (28, 28), "red").save(tmp_path / "1.png")
    (tmp_path / "metadata.csv").write_text("file_name,question,answer\n1.png,Which colour?,red\n")
    [problem] = problems(str(tmp_path))
    assert problem.images == (tmp_path / "1.png",)


def test_what_is_wrong_is_said_with_the_columns_or_the_first_row(tmp_path):
    name = written(tmp_path / "mine.jsonl", [{"asked": "How many?", "gold": "7", "picture": "../other.png"}] * 3)
    with pytest.raises(InvalidFileError, match="no column that is known to be the question") as error:
        find_set(name)
    assert "asked, gold, picture" in str(error.value)
    with pytest.raises(InvalidFileError, match="no column 'nothing'"):
        find_set(with_columns(name, "question=asked,answer=nothing"))
    with pytest.raises(InvalidFileError, match="does not say what 'asked' is called"):
        with_columns(name, "asked=question")
    with pytest.raises(MissingDataError, match=r"file outside the set's folder.*the first is row 1"):
        problems(with_columns(name, "question=asked,answer=gold"))
    with pytest.raises(InvalidFileError, match=r"empty\.jsonl has no rows"):
        find_set(written(tmp_path / "empty.jsonl", []))
    with pytest.raises(MissingDataError, match=r"data/mine\.jsonl is not on this machine"):  # no dataset of the hub
        find_set("data/mine.jsonl")
    with pytest.raises(MissingDataError, match=r"It is no address of the hub\.\nNext: .*hf://datasets/OWNER/NAME"):
        find_set("hf://nothing")
    (tmp_path / "broken.jsonl").write_text('{"question": "2 + 2?", "answer": 4}\n\n{"question"')
    with pytest.raises(InvalidFileError, match=r"broken\.jsonl cannot be read.\n.*line 3, column 12: Expecting"):
        find_set(str(tmp_path / "broken.jsonl"))
    (tmp_path / "disk").mkdir()
    with pytest.raises(MissingDataError, match=r"Tables there: none that ends in \.parquet"):
        find_set(str(tmp_path / "disk"))
    (tmp_path / "sheet.xlsx").write_bytes(b"PK")
    with pytest.raises(InvalidFileError, match=r"sheet\.xlsx is no such table.\nTables are read from \.parquet"):
        find_set(str(tmp_path / "sheet.xlsx"))
    with pytest.raises(InvalidFileError, match=r"^data='virl': no training set 'virl'.* or the path of your own"):
        load_recipe("grpo", data="virl")


def test_a_recipe_has_the_whole_path_and_its_key_the_name_alone(tmp_path, monkeypatch):
    from atrl_bench.profiles import load_profile
    from atrl_bench.training.run_spec import run_spec

    written(tmp_path / "mine.jsonl", [{"question": "2 + 2?", "answer": "4"}])
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("grpo", data="mine.jsonl")
    assert recipe.data == resolved("mine.jsonl") == str(tmp_path / "mine.jsonl")
    assert run_spec(recipe, load_profile("mini"), "base", "data", 0)["recipe"]["data"] == "mine.jsonl"


# Of the hub -----------------------------------------------------------------------------------------------------------

READ = """
import json, sys
from atrl_bench.data.dataset import data_digest
from atrl_bench.data.sets import find_set
from atrl_bench.training.data import load_training_data
described, data = find_set({name!r}), load_training_data({name!r}, None)
shown = [[image.size for image in problem.decoded()] for problem in data.problems]
print(json.dumps([[p.question for p in data.problems], shown, data_digest(described, None), described.num_rows]))
"""


def embedded(tmp_path, rows):
    return (tmp_path / written(tmp_path / "of_hub.parquet", rows)).read_bytes()


def test_a_dataset_of_the_hub_is_pinned_and_named_by_its_contents_as_a_folder_is(local_hub, tmp_path):
    rows = [{"asked": "How many?", "gold": "7", "image": {"bytes": RED, "path": None}}]
    table = embedded(tmp_path, rows)
    others = {"data/test-00000-of-00001.parquet": b"never asked for", "dataset_infos.json": b"{}"}
    hub = local_hub.add("dataset", "someone/sums", {"data/train-00000-of-00001.parquet": table, **others})
    program = READ.format(name="someone/sums?question=asked&answer=gold")
    first = run(program, tmp_path / "home", local_hub.url)
    assert first == [["How many?"], [[[28, 28]]], first[2], 1]
    assert local_hub.sent == ["data/train-00000-of-00001.parquet"]
    folder = tmp_path / "same" / "data"
    folder.mkdir(parents=True)
    (folder / "train-00000-of-00001.parquet").write_bytes(table)
    assert data_digest(find_set(f"{tmp_path / 'same'}?question=asked&answer=gold"), None) == first[2]
    hub.move({"data/train-00000-of-00001.parquet": embedded(tmp_path, rows * 2)})
    assert run(program, tmp_path / "home", local_hub.url) == first, "the commit is pinned"
    assert run(program, tmp_path / "home", NOBODY, HF_HUB_OFFLINE="1") == first
    assert run(program, tmp_path / "another home", local_hub.url)[3] == 2
    at_first = READ.format(
        name=f"hf://datasets/someone/sums@{'1' * 40}/data/train-00000-of-00001.parquet?question=asked&answer=gold"
    )
    assert run(at_first, tmp_path / "another home", local_hub.url)[2:] == first[2:]


@pytest.mark.parametrize("in_archive", [False, True])
def test_what_the_rows_of_a_hubs_dataset_show_is_brought_as_files_or_in_archives(local_hub, tmp_path, in_archive):
    rows = [{"question": "How many?", "answer": "7", "image": "pictures/1.png"}]
    files = {"train.jsonl": "\n".join(map(json.dumps, rows)).encode(), "pictures/unused.png": RED}
    if in_archive:
        files["pictures.zip"] = packed({"pictures/1.png": fake_backend.picture("red")})
    else:
        files["pictures/1.png"] = fake_backend.picture("red")
    local_hub.add("dataset", "someone/shown", files)
    questions, shown, *_ = run(READ.format(name="someone/shown"), tmp_path / "home", local_hub.url)
    assert (questions, shown) == (["How many?"], [[[56, 56]]])
    assert "pictures/unused.png" not in local_hub.sent


def test_a_dataset_of_the_hub_is_trained_on_measured_and_looked_for_in_benchmarks(local_hub, tmp_path):
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1), "images": [{"bytes": RED, "path": None}]} for n in range(9)]
    local_hub.add("dataset", "someone/sums", {"train.parquet": embedded(tmp_path, rows)})
    machine = Machine(tmp_path, local_hub)

    def said_by(*arguments):
        done = machine.type(*arguments, "--profile", "smoke", OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    assert "data: someone/sums" in said_by("train", "grpo", "--data", "someone/sums", "--dry-run")
    trained = json.loads(said_by("train", "grpo", "--data", "someone/sums", "--json"))
    assert trained["summary"]["num_rollouts"] == 2
    assert "Left to do: 1 measurement" in said_by(
        "signal", "--data", "someone/sums", "--prompts", "9", "--held-out", "0", "--dry-run"
    )
    assert "geoqa_test" in said_by("overlap", "someone/sums", "geoqa_test")
    unknown = machine.type("train", "grpo", "--data", "someone/nothing", "--dry-run", "--profile", "smoke")
    assert unknown.returncode == 1
    assert "There is no training set someone/nothing" in unknown.stderr
    assert "The hub knows no such name" in " ".join(unknown.stderr.split())


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_script_that_imports_torch_first_reads_its_rows_within_the_limit_of_memory(tmp_path, form):
    name = written(tmp_path / f"mine.{form}", [{"question": "2 + 2?", "answer": 4}])
    script = tmp_path / "mine.py"
    script.write_text(
        "import torch, transformers\n"
        "from atrl_bench.data.sets import find_set\n"
        f"if __name__ == '__main__':\n    print(find_set({name!r}).num_rows)\n"
    )
    assert printed(script, timeout=120) == "1\n"
