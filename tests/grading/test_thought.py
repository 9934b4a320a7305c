"""Answers of models that think first: read behind the thought, never inside it."""

import pytest

from atrl_bench.grading.grade import grade
from atrl_bench.results.records import Gold

# How the thought and the answer stand in a response, by the models that write so.
FORMS = {
    "in tags, the answer in a box": "<think>{thought}</think>\n\nThe answer is \\boxed{{{answer}}}.",
    "in tags, the answer in prose": "<think>{thought}</think>\n\nThe answer is {answer}.",
    "opened by the prompt": "{thought}\n</think>\n\n**Answer: {answer}**",
    "Kimi-VL": "◁think▷{thought}◁/think▷The answer is {answer}",
    "GLM-4.1V": "<think>{thought}</think>The answer is <|begin_of_box|>{answer}<|end_of_box|>.",
    "Video-R1": "<think>{thought}</think>\n<answer>{answer}</answer>",
    "Video-R1, not closed": "<think>{thought}\n<answer>{answer}</answer>",
    "Sky-T1": "<|begin_of_thought|>{thought}<|end_of_thought|>\nThe answer is \\boxed{{{answer}}}.",
    "two thoughts": "<think>{thought}</think>Let me see.<think>{thought}</think> The answer is {answer}.",
}
KINDS = {  # a gold answer, and what the thought considers before it is discarded
    "number": (Gold("7", kind="number"), "3"),
    "choice": (Gold("B", choices=("red", "green", "blue"), kind="choice"), "A"),
    "text": (Gold("Paris"), "London"),
}
CONSIDERED = "Maybe \\boxed{{{other}}}. The answer is {other}. No, wait."


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_the_answer_is_read_behind_the_thought(form, kind):
    gold, other = KINDS[kind]
    for thought, answer, state in [
        (CONSIDERED.format(other=other), gold.answer, "correct"),
        (CONSIDERED.format(other=gold.answer), other, "wrong"),
    ]:
        verdict = grade(FORMS[form].format(thought=thought, answer=answer), gold)
        assert (verdict.state, verdict.extracted) == (state, answer)


@pytest.mark.parametrize(
    "begin", ["<think>", "<thinking>", "◁think▷", "<|begin_of_thought|>", "<think>a</think> <think>"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_an_unfinished_thought_is_never_an_answer(begin, kind):
    gold, _ = KINDS[kind]
    verdict = grade(begin + CONSIDERED.format(other=gold.answer) + " Let me check again whether", gold)
    assert (verdict.state, verdict.extracted, verdict.why) == ("unparseable", None, "it ends inside its thought")


def test_a_response_without_a_thought_is_read_whole_whatever_else_it_has_in_brackets():
    assert grade("\\boxed{7} <answer>8</answer>", Gold("7")).state == "correct"
    assert grade("3 < 7, so the answer is 7. </s>", Gold("7")).state == "correct"
