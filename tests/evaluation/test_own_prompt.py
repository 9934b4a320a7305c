"""Another prompt and other sampling than the profile's: what the model is shown, and what names it."""

import pytest

from atrl_bench.data.own import own_fields
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.evaluation.cell_spec import cell_spec
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.prompts_for import prompts_for
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.models.templates import NAMED, render, template_name, template_text
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run_spec import run_spec

SMOKE = load_profile("smoke")
VPPO = (
    "What is 2 + 2?\n\nYou first think through the reasoning process as an internal monologue, enclosed within <think> "
    "</think> tags. Then, provide your final answer enclosed within \\boxed{}."
)


def spec_of(data, task="geoqa_test", **sizes):
    return cell_spec("mini", task, profile=SMOKE.answering(**sizes), data_dir=data)


def shown(data, task="geoqa_test", **sizes):
    """Return who says what in the first prompt of a task."""
    info = find_task(task)
    prompt = next(prompts_for(info, load_rows(info, data, 1), spec_of(data, task, **sizes)))
    return [(turn["role"], part.get("text", "")) for turn in prompt.messages for part in turn["content"]]


def test_think_then_box_is_the_prompt_that_vppo_prints() -> None:
    assert render("What is 2 + 2?", template_text("think-then-box")) == VPPO


def test_a_template_is_a_text_a_file_or_jinja_and_the_question_stands_in_it_as_it_is(tmp_path) -> None:
    easy_r1 = tmp_path / "math.jinja"
    easy_r1.write_text("{{ content | trim }} Look at the {{ medium }}.\n", encoding="utf-8-sig")
    question = "What is {x} in \\frac{1}{2}?"
    assert render(question, template_text("Q: {question} \\boxed{}")) == f"Q: {question} \\boxed{{}}"
    assert render(question, template_text(str(easy_r1)), "video") == f"{question} Look at the video."
    assert "shown in the image" in render(" ", template_text("{question}"))


def test_a_system_prompt_whose_file_is_not_there_is_not_sent_as_its_name() -> None:
    assert SMOKE.answering(system="Be brief.").evaluation.system == "Be brief."
    with pytest.raises(
        InvalidFileError, match=r"prompts/brief.txt cannot be read.*\n.*No such file.*\nNext: write prompts/brief.txt"
    ):
        SMOKE.answering(system="prompts/brief.txt")


def test_a_template_that_shows_no_question_or_does_anything_else_is_refused(tmp_path) -> None:
    with pytest.raises(UnknownNameError, match="think-then-box"):
        template_text("think_then_box")
    (own := tmp_path / "own.txt").write_text("Look at the image.")
    with pytest.raises(InvalidFileError, match=r"own.txt is no template.\nIt has no \{question\}."):
        template_text(str(own))
    for text in ("{{ question.__class__.__mro__ }}", "{{ question }} {% if %}", "{{ question + 1 }}"):
        with pytest.raises(InvalidFileError, match="cannot be filled in"):
            template_text(text)


@pytest.mark.parametrize("task", ["geoqa_test", "mmmu_val", "mathverse_text_only", "mega_bench_core"])
def test_every_task_is_asked_in_the_template_and_under_the_system_prompt(task, mini_world) -> None:
    (who, first), *rest = shown(mini_world, task, template="Now: {question} Done.", system="Be brief.")
    assert (who, first) == ("system", "Be brief.")
    text = "".join(text for role, text in rest if role == "user")
    assert text.startswith("Now: ")
    assert text.endswith(" Done.")


def test_a_prompt_is_named_by_its_text_and_one_that_nobody_chose_by_nothing(mini_world, tmp_path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text(NAMED["think-then-box"] + "\n")
    plain, named, of_file = (spec_of(mini_world, template=name) for name in (None, "think-then-box", str(mine)))
    assert "prompt" not in plain.as_dict()
    assert "top_k" not in plain.as_dict()["decoding"]
    assert named.key == of_file.key != plain.key
    assert spec_of(mini_world, system="Be brief.").key != plain.key
    assert spec_of(mini_world, top_k=5).as_dict()["decoding"]["top_k"] == 5
    assert template_name(named.prompt["template"]) == "think-then-box"


def test_a_program_is_asked_for_in_its_own_words(mini_world) -> None:
    assert spec_of(mini_world, "chartmimic_direct_600", template="think-then-box").prompt is None


def test_a_training_asks_in_its_recipes_prompt_which_is_in_its_key(tmp_path) -> None:
    from atrl_bench.training.data import load_training_data

    (tmp_path / "mine.jsonl").write_text('{"question": "What is 2 + 2?", "answer": 4}\n')
    data = str(tmp_path / "mine.jsonl")
    assert own_fields(data)["num_rows"] == 1
    plain = load_recipe("grpo", data=data)
    asked = load_recipe("grpo", data=data, template="think-then-box", system="Be brief.")
    of_recipe = load_training_data(data, None).asked_in(asked.template, asked.system)
    assert of_recipe.problems[0].messages(0) == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": VPPO}]},
    ]
    specs = [run_spec(recipe, SMOKE, "base", "data", 0)["recipe"] for recipe in (plain, asked)]
    assert specs[1] == specs[0] | {"template": NAMED["think-then-box"], "system": "Be brief."}
