"""A cap on what an endpoint's answers may take, in tokens or in money: it stops, and goes on when asked again."""

import json
from functools import partial

import pytest

from atrl_bench.errors import BudgetSpentError
from atrl_bench.models.budget import Budget
from atrl_bench.models.completion import tokens_taken

NUM_PROBLEMS = 12


@pytest.fixture
def evaluate(tmp_path, serve, atrl_bench):
    """Evaluate a server each of whose answers takes 900 tokens to ask and 100 to give; with the server."""
    rows = [{"question": f"What is {n} + 1?", "answer": n + 1} for n in range(NUM_PROBLEMS)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    usage = {"prompt_tokens": 900, "completion_tokens": 100}
    reply = {"choices": [{"message": {"content": "\\boxed{3}\nCorrect"}, "finish_reason": "stop"}], "usage": usage}
    server = serve(json.dumps(reply).encode())
    words = ("evaluate", "x", "--base-url", server.url, "--tasks", "mine.jsonl", "--profile", "smoke", "--repeats", "1")

    return partial(atrl_bench, *words, "--num-parallel", "2"), server


@pytest.mark.parametrize("cap", [("5000",), ("5.5", "--prices", "1000,2000")], ids=["tokens", "money"])
def test_what_is_spent_stops_the_command_with_a_code_of_its_own_and_the_next_one_goes_on(cap, evaluate) -> None:
    run, server = evaluate
    stopped = run("--max-cost", *cap)
    # 1,000 tokens an answer, or 900 x 0.001 + 100 x 0.002 = 1.1: five answers, and the one beside them.
    assert (stopped.code, 5 <= len(server.requests) <= 6) == (3, True)
    assert "What --max-cost allows is spent." in stopped.err
    assert "the same command again" in stopped.err
    before = len(server.requests)
    done = run("--max-cost", "100000")
    assert (done.code, len(server.requests)) == (0, NUM_PROBLEMS)
    left = NUM_PROBLEMS - before
    assert f"Spent: {900 * left:,} tokens of prompts and {100 * left:,} of answers, of 100,000." in done.out


def test_the_tokens_of_a_judge_are_spent_too(evaluate) -> None:
    run, server = evaluate
    stopped = run("--max-cost", "5000", "--judge-base-url", server.url, "--judge-model", "judge")
    assert (stopped.code, "What --max-cost allows is spent." in stopped.err) == (3, True)
    # The calibration questions come first: five, and those beside them.
    assert [body["model"] for body in server.requests] == ["judge"] * len(server.requests)
    assert 5 <= len(server.requests) <= 13


def test_the_judge_of_the_folder_is_counted_too(evaluate, atrl_bench) -> None:
    run, server = evaluate
    assert atrl_bench("judge", server.url, "--model", "judge", "--no-strict", "--profile", "smoke").code == 0
    before = len(server.requests)
    done = run("--max-cost", "100000")
    asked = server.requests[before:]
    assert {body["model"] for body in asked} == {"x", "judge"}
    assert f"Spent: {900 * len(asked):,} tokens of prompts and {100 * len(asked):,} of answers" in done.out


def test_a_judge_has_its_own_prices_under_the_same_cap(evaluate) -> None:
    budget = Budget(10.0, (1e6, 0.0))
    of_judge = budget.beside((0.0, 2e6))
    of_judge.count(5, 2)
    budget.count(3, 9)
    assert (budget.spent, of_judge.spent) == (3 + 4, 7)
    budget.require_left()
    of_judge.count(0, 2)
    with pytest.raises(BudgetSpentError, match="11 of 10: 8 tokens of prompts and 13 of answers"):
        budget.require_left()

    run, server = evaluate
    judged = ("--max-cost", "20", "--prices", "0,0", "--judge-base-url", server.url, "--judge-model", "judge")
    assert "give --judge-prices" in " ".join(run(*judged).err.replace("│", " ").split())
    assert server.requests == []
    stopped = run(*judged, "--judge-prices", "10000,0")  # 9 a question: three, and those beside them
    assert (stopped.code, 3 <= len(server.requests) <= 11) == (3, True)


def test_a_server_that_tells_no_usage_is_counted_by_letters_and_pictures() -> None:
    messages = [
        {"role": "system", "content": "x" * 30},
        {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "x" * 60}]},
    ]
    reply = json.dumps({"choices": [{"message": {"content": "y" * 90}}]}).encode()
    assert tokens_taken(messages[1:], reply) == (1_020, 30)
    assert tokens_taken(messages[:1], b"no reply") == (10, 0)
    assert tokens_taken(messages, reply) == (1_030, 30)


def test_a_cap_is_for_what_a_url_answers(evaluate) -> None:
    run, _ = evaluate
    assert "--prices for --max-cost" in run("--prices", "1,2").err.replace("\n", " ")
    for prices in ("1", "nan,1"):
        assert "no pair of prices" in run("--max-cost", "1", "--prices", prices).err.replace("\n", " ")
    judged = run("--judge-base-url", "http://localhost:9/v1", "--judge-prices", "1").err
    assert "Invalid value for --judge-prices" in judged
