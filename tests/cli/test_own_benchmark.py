"""Somebody who only evaluates: an endpoint, a table of her own, and her scores."""

import json
import re

import pytest
from html_page import Page
from PIL import Image
from typer.testing import CliRunner

import atrl_bench
from atrl_bench.cli import app

ROWS = [
    {"asked": "What colour is it?", "picture": "red.png", "gold": "red"},
    {"asked": "Is it red?", "picture": "red.png", "gold": "yes"},
    {"asked": "Which?", "picture": "red.png", "options": ["blue", "red"], "gold": "B"},
    {"asked": "How much is 2 + 2?", "gold": 4},
]
ANSWERS = {"colour": r"\boxed{red}", "Is it": "The answer is no.", "Which": r"\boxed{B}", "2 + 2": r"\boxed{5}"}


def text_of(html: str) -> str:
    return " ".join(Page(html).text.split())


def run(*words: str) -> str:
    result = CliRunner().invoke(app(), list(words))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (50, 40), "red").save("red.png")
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "asked.txt").write_text("{question}\nThink, then answer in \\boxed{}.\n")
    return tmp_path


def test_an_endpoint_evaluated_on_own_data_has_its_scores_in_the_frame_and_on_pages(here, serve) -> None:
    def answer(body):
        [part] = [part["text"] for part in body["messages"][-1]["content"] if part["type"] == "text"]
        return next(text for words, text in ANSWERS.items() if words in part)

    server = serve(answer=answer)
    said = run(
        *("evaluate", "my-vlm", "--base-url", server.url, "--profile", "smoke", "--tasks", "mine.jsonl"),
        *("--columns", "question=asked,answer=gold,image=picture", "--template", "asked.txt", "--system", "Be brief."),
        *("--max-tokens", "77", "--repeats", "1", "--temperature", "0", "--top-p", "0.9"),
    )
    assert "my-vlm is asked for at most 77 tokens at temperature 0" in said
    sent = server.requests[0]
    sent_with = {(request["temperature"], request["top_p"], request["max_tokens"]) for request in server.requests}
    assert sent_with == {(0, 0.9, 77)}
    assert sent["messages"][0] == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    [text] = [part["text"] for part in sent["messages"][1]["content"] if part["type"] == "text"]
    assert text.endswith("\nThink, then answer in \\boxed{}.")
    shown = [part["type"] for request in server.requests for part in request["messages"][1]["content"]]
    assert shown.count("image_url") == 3

    expected = {"model": "my-vlm", "profile": "smoke", "max_tokens": 77, "metric": "acc@1", "value": 50.0}
    [line] = atrl_bench.frame("runs/smoke").to_dict("records")
    assert expected.items() <= line.items()

    reports = here / "runs" / "smoke" / "reports"
    page = text_of((reports / "evaluations.html").read_text())
    for words in ("my-vlm", "mine.jsonl", "at most 77 tokens", "system prompt Be brief.", "50.0"):
        assert words in page
    assert "Evaluations" in text_of((reports / "index.html").read_text())
    [answers] = (reports / "samples" / "evaluations").glob("*.html")
    for words in ("How much is 2 + 2?", "acc@1 50.0 %"):
        assert words in text_of(answers.read_text())
    assert len(list((reports / "media").glob("*.png"))) == 1

    asked = len(server.requests)
    run("report", "all", "--profile", "smoke")
    assert len(server.requests) == asked
    assert "50.0" in text_of((reports / "evaluations.html").read_text())


def test_a_price_says_that_the_rows_are_in_the_users_file_which_nobody_has_to_fetch(here) -> None:
    asked = ("evaluate", "mini", "--profile", "smoke", "--tasks", "mine.jsonl", "--columns", "question=asked")
    told = json.loads(run(*asked, "--dry-run", "--json"))
    assert [cell["dataset"] for cell in told["cells"]] == [str(here / "mine.jsonl")]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"id": 1, "question": "2 + 2?", "answer": 4}] * 2, "2 rows of second.jsonl have the problem id '1'"),
        ([{"question": "Which?", "options": ["3", "4"], "answer": "5"}], "1 of 1 rows cannot be read"),
        ([{"question": "Which?", "image": "none.png", "answer": "5"}], "None of the 1 files that second.jsonl shows"),
        ([], "second.jsonl has no rows"),
    ],
)
def test_all_files_are_read_and_checked_before_the_first_answer(rows, reason, here, serve) -> None:
    (here / "first.jsonl").write_text(json.dumps({"question": "2 + 2?", "answer": 4}))
    (here / "second.jsonl").write_text("\n".join(map(json.dumps, rows)))
    server = serve(r"\boxed{4}")
    words = ("evaluate", "vlm", "--base-url", server.url, "--profile", "smoke", "--tasks", "first.jsonl,second.jsonl")
    result = CliRunner().invoke(app(), list(words))
    assert reason in str(result.exception)
    assert not server.requests


def test_what_was_answered_in_a_users_prompt_is_no_answer_to_another(here, serve) -> None:
    server = serve(r"\boxed{red}")
    for prompt in (("--system", "Be brief."), ("--template", "{question}"), ()):
        run(
            "evaluate",
            "vlm",
            "--base-url",
            server.url,
            *("--profile", "smoke", "--tasks", "mine.jsonl", "--limit", "1"),
            *prompt,
            *COLUMNS,
        )
    assert len({json.dumps(request["messages"]) for request in server.requests}) == 3


def test_models_asked_in_one_way_stand_under_one_heading_and_another_way_has_its_own(here) -> None:
    for extra in ((), THINKING):
        run("evaluate", "mini", "--profile", "smoke", "--tasks", "mine.jsonl", "--repeats", "1", *extra, *COLUMNS)
    (here / "mine.jsonl").rename(here / "elsewhere.jsonl")  # stored answers are compared without the file
    compared = run("compare", "mini", "mini", "--task", "DATA/mine.jsonl", "--profile", "smoke", *THINKING)
    assert "mine.jsonl" in compared
    page = text_of((here / "runs/smoke/reports/evaluations.html").read_text())
    assert "1 answer; three templates" in page
    assert "1 answer; template think-then-box" in page


THINKING = ("--template", "think-then-box")
COLUMNS = ("--columns", "question=asked,answer=gold,image=picture")


def test_what_one_of_two_models_was_not_asked_is_missing_with_the_command_that_asks_it(here, serve) -> None:
    server = serve(r"\boxed{red}")
    for model, tasks in (("one", "mine.jsonl,two.jsonl"), ("other", "mine.jsonl")):
        (here / "two.jsonl").write_text((here / "mine.jsonl").read_text())
        words = ("--base-url", server.url, "--profile", "smoke", "--tasks", tasks, "--repeats", "1", *COLUMNS)
        run("evaluate", model, *words)
    page = text_of((here / "runs/smoke/reports/evaluations.html").read_text())
    assert "atrl-bench evaluate other --base-url URL --tasks two.jsonl --profile smoke" in page
    compared = CliRunner().invoke(app(), ["compare", "one", "other", "--task", "two.jsonl", "--profile", "smoke"])
    path = f"'{here / 'two.jsonl'}?question=asked&answer=gold&image=picture'"
    assert f"atrl-bench evaluate other --base-url URL --tasks {path} --profile smoke" in str(compared.exception)


def test_columns_are_for_a_table_of_ones_own(here) -> None:
    result = CliRunner().invoke(app(), ["evaluate", "mini", "--tasks", "geoqa_test", "--profile", "smoke", *COLUMNS])
    assert (result.exit_code, "for a benchmark of your own" in " ".join(result.output.split())) == (2, True)


def test_rows_without_an_answer_are_counted_together_and_an_id_of_two_rows_is_named(here) -> None:
    words = ("evaluate", "mini", "--profile", "smoke", "--tasks", "bad.jsonl")
    good, empty = {"id": 1, "question": "2 + 2?", "answer": 4}, {"question": "3 + 2?"}
    for rows, said in (
        ([good, empty, empty], "2 of 3 rows cannot be read, shown or asked."),
        ([good, good], "2 rows of bad.jsonl have the problem id '1'."),
    ):
        (here / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = CliRunner().invoke(app(), list(words))
        assert said in str(result.exception)


def test_two_tables_of_one_name_are_not_evaluated_as_one_nor_compared(here, serve) -> None:
    server = serve(r"\boxed{4}")
    for folder, answer in (("a", 4), ("b", 5)):
        (here / folder).mkdir()
        (here / folder / "mine.jsonl").write_text(json.dumps({"question": "How many?", "answer": answer}) + "\n")
    words = ("--base-url", server.url, "--profile", "smoke", "--repeats", "1", "--tasks")
    result = CliRunner().invoke(app(), ["evaluate", "one", *words, "a/mine.jsonl,b/mine.jsonl"])
    assert "2 benchmarks are called mine.jsonl." in str(result.exception)
    run("evaluate", "one", *words, "a/mine.jsonl")
    run("evaluate", "other", *words, "b/mine.jsonl")
    page = text_of((here / "runs/smoke/reports/evaluations.html").read_text())
    assert ("smoke: other" in page, "smoke: one" in page) == (True, False)


def thinking(body):
    """A server that takes the reasoning out of an answer, shows none and counts it, leaves it in, or is cut off."""
    [part] = [part["text"] for part in body["messages"][-1]["content"] if part["type"] == "text"]
    message, finish, usage = {"content": r"\boxed{red}", "reasoning_content": "It is red, " * 9}, "stop", {}
    if "Is it" in part:
        message, usage = {"content": r"\boxed{yes}"}, {"completion_tokens_details": {"reasoning_tokens": 70}}
    elif "Which" in part:
        message = {"content": f"<think>{'x' * 300}</think>" + r"\boxed{B}"}
    elif "2 + 2" in part:
        message, finish = {"content": None, "reasoning": r"Perhaps \boxed{4}, perhaps"}, "length"
    reply = {"choices": [{"message": message, "finish_reason": finish}], "usage": {"completion_tokens": 100, **usage}}
    return json.dumps(reply).encode()


def test_thought_is_counted_apart_wherever_a_server_puts_it_and_an_unfinished_one_is_cut_off(here, serve) -> None:
    server = serve(answer=thinking)
    words = ("--base-url", server.url, "--profile", "smoke", "--tasks", "mine.jsonl", "--repeats", "1", *COLUMNS)
    said = run("evaluate", "thinker", *words)
    assert "3 correct, 1 unparseable; 1 truncated" in said
    assert re.search(r"75\.00  %, \d+\.\d to \d+\.\d\n", said)  # half of it would leave 0 to 100
    run("export", "jsonl", "--profile", "smoke")
    lines = [json.loads(line) for line in (here / "runs/smoke/exports/samples.jsonl").read_text().splitlines()]
    # By the server's count where it gives one, else by the share of letters.
    thought = [len(line["text"]) - len(line["text"].split("</think>")[-1]) for line in lines]
    by_letters = [round(100 * part / len(line["text"])) for part, line in zip(thought, lines, strict=True)]
    assert [line["num_thought"] for line in lines] == [by_letters[0], 70, by_letters[2], 100]
    assert (by_letters[0] > 80, by_letters[2] > 90) == (True, True)
    assert [line["truncated"] for line in lines] == [False, False, False, True]
    [scores] = atrl_bench.frame("runs/smoke").to_dict("records")
    mean = sum(line["num_thought"] for line in lines) / 4
    assert (scores["mean_tokens"], scores["mean_thought_tokens"]) == (100, mean)
    assert f"100 tokens an answer, of which {mean:.0f} thought" in said
    page = text_of((here / "runs/smoke/reports/evaluations.html").read_text())
    assert f"100, of which {round(mean)} thought" in page
    [answers] = (here / "runs/smoke/reports/samples/evaluations").glob("*.html")
    assert "it ends inside its thought" in text_of(answers.read_text())
