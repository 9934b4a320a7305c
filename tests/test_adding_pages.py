"""The pages of docs/ on adding something, followed literally in a copy of the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the pages are in the checkout alone")


def blocks(page: str, language: str) -> list[str]:
    """Return the page's pieces in this language, in their order."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)


@pytest.mark.slow
def test_a_table_is_a_yaml_file_and_printed_scores_a_csv_file(checkout):
    (table,), (scores,) = blocks("adding_a_table.md", "yaml"), blocks("adding_a_table.md", "csv")
    checkout.write("reports/tables/first_look.yaml", table)
    checkout.write("reports/paper/first_look.csv", scores)
    assert "first_look" in checkout.run("list", "tables")
    assert "gspo_atrl" in checkout.run("plan", "first_look", "--profile", "smoke", "--json")
    made = checkout.run("run-table", "first_look", "--profile", "smoke", "--rows", "zero_shot,grpo")
    assert re.search(r"GRPO", made), made
    assert (checkout.folder / "runs" / "smoke" / "reports" / "first_look.tex").is_file()
    assert "46.86" in (checkout.folder / "runs" / "smoke" / "reports" / "first_look.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_reward_is_a_class_a_line_in_the_registry_and_a_recipe(checkout):
    (code,), changes = blocks("adding_a_reward.md", "python"), blocks("adding_a_reward.md", "diff")
    (recipe,) = blocks("adding_a_reward.md", "yaml")
    checkout.write("atrl_bench/training/rewards/brief.py", code)
    for change in changes:
        checkout.patch("atrl_bench/training/rewards/registry.py", change)
    checkout.write("recipes/grpo_brief.yaml", recipe)
    train = ("train", "grpo_brief", "--credit", "atrl", "--profile", "smoke")
    assert "+0.5 correct" in checkout.run(*train, "--dry-run")
    assert "Checkpoint" in checkout.run(*train)
    program = (
        "from atrl_bench.grading.grade import GradingPool; from atrl_bench.training.rewards.brief import BriefReward\n"
        "texts = [r'\\boxed{5}', 'so ' * 20 + r'\\boxed{5}', r'\\boxed{6}']\n"
        "with GradingPool() as pool:\n"
        "    print(BriefReward(pool)([[{'content': t}] for t in texts], answer=['5'] * 3))\n"
    )
    assert "[1.0, 0.5, -1.0]" in checkout.python("-c", program)
