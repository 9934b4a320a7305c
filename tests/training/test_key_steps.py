"""Key steps asked of a server on this machine: what is sent, what is read, and that nothing is asked twice."""

import json
import shutil

import pyarrow.parquet
import pytest

from atrl_bench.errors import EndpointError, InvalidFileError, MissingDataError
from atrl_bench.training.data import load_training_data
from atrl_bench.training.key_steps import extract_key_steps, read_reply, request


@pytest.fixture
def folder(data_dir, tmp_path):
    """A copy of the sixteen problems: `What is 0?` to `What is 15?`."""
    shutil.copytree(data_dir / "geometry3k", tmp_path / "geometry3k")
    return tmp_path


def question_of(body):
    return body["messages"][0]["content"][-1]["text"]


def steps_of(body):
    number = question_of(body).partition("What is ")[2].partition("?")[0]
    return f'I see. {{"Steps": [["{number} = {number}", "it is {number}"]]}}'


def extract(model, folder, **options):
    endpoint = model.endpoint(num_attempts=2, num_parallel=2, sleep=lambda _: None)
    return extract_key_steps("geometry3k", folder, endpoint, **options)


def test_every_problem_gets_its_key_steps_and_training_reads_them(serve, folder):
    model, seen = serve(answer=steps_of), []
    result = extract(model, folder, on_progress=lambda done, total: seen.append((done, total)))
    assert (result.num_problems, result.num_refused) == (16, 0)
    assert sorted(seen) == [(done, 16) for done in range(1, 17)]
    problems = load_training_data("geometry3k", folder).problems
    assert problems[7].key_steps == (("7 = 7", "it is 7"),)
    assert {json.loads(line)["model"] for line in result.path.read_text().splitlines()} == {"mini"}


def test_what_is_there_is_not_asked_again_even_after_a_line_cut_short(serve, folder):
    model = serve(answer=steps_of)
    path = extract(model, folder, max_problems=5).path
    assert len(model.requests) == 5
    whole = path.read_text()
    path.write_text(whole[:-10])  # a kill in the middle of the fifth line
    result = extract(model, folder, max_problems=6)
    assert len(model.requests) == 5 + 2
    assert result.num_problems == 6
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_another_model_is_refused_where_the_first_ones_key_steps_are(serve, folder):
    path, other = extract(serve(answer=steps_of), folder, max_problems=5).path, serve(answer=steps_of)
    path.write_text(path.read_text().replace('"model": "mini"', '"model": "larger"'))
    with pytest.raises(InvalidFileError, match="key steps that larger named, not mini"):
        extract(other, folder)
    assert not other.requests


def test_a_problem_keeps_the_key_steps_of_its_table_and_is_not_asked_for(serve, folder):
    (path,) = (folder / "geometry3k").glob("*.parquet")
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.append_column("key_steps", pyarrow.array([[["by hand"]], *[[]] * 15])), path)
    model = serve(answer=steps_of)
    extract(model, folder, max_problems=2)
    assert len(model.requests) == 1
    problems = load_training_data("geometry3k", folder).problems
    assert [one.key_steps for one in problems[:3]] == [(("by hand",),), (("1 = 1", "it is 1"),), ()]


def test_a_problem_without_a_usable_reply_is_counted_and_asked_again_next_time(serve, folder):
    deaf = serve(answer=lambda body: "I cannot." if "What is 3?" in question_of(body) else steps_of(body))
    result = extract(deaf, folder)
    assert (result.num_problems, result.num_refused) == (15, 1)
    assert len(deaf.requests) == 15 + 2, "each reply that is none is asked for twice"
    assert extract(serve(answer=steps_of), folder).num_problems == 16


def test_a_server_that_is_down_ends_the_extraction_and_keeps_what_there_is(serve, folder):
    extract(serve(answer=steps_of), folder, max_problems=4)
    with pytest.raises(EndpointError, match="did not answer"):
        extract(serve((500, {}, b"")), folder)
    assert len(load_training_data("geometry3k", folder).problems[3].key_steps) == 1


def test_without_a_chain_the_model_sees_the_images_and_the_answer(folder):
    problem = load_training_data("geometry3k", folder).problems[7]
    (message,) = request(problem)
    image, text = message["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert "Correct answer:\n7" in text["text"]
    assert "First solve the problem" in text["text"]


def test_with_a_chain_the_model_reads_it_and_needs_no_image(folder):
    from dataclasses import replace

    problem = replace(load_training_data("geometry3k", folder).problems[7], process="### Step 1: 3 + 4 = 7")
    (message,) = request(problem)
    (text,) = message["content"]
    assert "Solution:\n### Step 1: 3 + 4 = 7" in text["text"]


@pytest.mark.parametrize(
    ("reply", "steps"),
    [
        ('{"Steps": [["a", "b"], "c"]}', (("a", "b"), ("c",))),
        ('Not {"Steps": [["x"]]} but { "Steps": [["y"]]}', (("y",),)),
        ('{"Steps": [[]]}', ()),
        ('{"Steps": [["a"]', ()),
        ('{"Steps": ' + "[" * 15_000, ()),
        ("none", ()),
        (json.dumps({"Steps": [["x" * 201]]}), ()),
        (json.dumps({"Steps": [[str(number)] for number in range(21)]}), ()),
    ],
)
def test_only_the_last_whole_object_of_a_reply_counts(reply, steps):
    assert read_reply(reply) == steps


def test_a_set_whose_table_has_them_needs_no_extraction(tmp_path, serve):
    from atrl_bench.mini.world import write_world
    from atrl_bench.profiles import load_profile

    world = write_world(tmp_path, load_profile("smoke"), ["r1_vl"])
    with pytest.raises(MissingDataError, match="Nothing to extract"):
        extract_key_steps("r1_vl", world, serve(answer=steps_of).endpoint())
