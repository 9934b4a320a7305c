"""The pages of docs/ on adding something, followed literally in a copy of the project."""

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """Return the page's pieces in this language, in their order."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)


def test_a_benchmark_is_a_yaml_and_a_python_file(checkout):
    (dataset, module), (task, *_) = blocks("adding.md", "python"), blocks("adding.md", "yaml")
    checkout.write("tasks/plates_test.py", module)
    checkout.write("tasks/plates_test.yaml", task)
    (checkout.folder / "DATA" / "plates").mkdir(parents=True)
    checkout.python("-c", dataset)
    listed = checkout.run("list", "tasks", "--data-dir", "DATA")
    assert re.search(r"plates_test +test +2 +real", listed)
    scores = checkout.run("evaluate", "mini", "--tasks", "plates_test", "--data-dir", "DATA", "--profile", "smoke")
    assert "2 problems x 2" in scores
    checkout.write("tasks/plates_test.yaml", f"{task}  precision: gold\n")
    assert "plates_test" in checkout.run("list", "tasks", "--data-dir", "DATA")
    checkout.write("tasks/plates_test.yaml", f"{task}  precision: digits\n")
    assert "plates_test.yaml: precision is 'digits'" in checkout.error("list", "tasks", "--data-dir", "DATA")


@pytest.mark.slow
def test_a_credit_rule_of_another_package_is_tested_trained_and_a_row_of_a_table(checkout):
    function, by_hand = blocks("credit_rules.md", "python")
    (project,), (table,) = blocks("credit_rules.md", "toml"), blocks("credit_rules.md", "yaml")
    files = {"sharper/rules.py": function, "sharper/paper/tables/sharpness.yaml": table}
    files["sharper/paper/paper.yaml"] = "title: Sharper attention"
    checkout.install(project, {"sharper/__init__.py": "", "sharper/paper/__init__.py": "", **files})
    (checkout.folder / "test_sharper.py").write_text(by_hand, encoding="utf-8")
    assert "1 passed" in checkout.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sharper.py")
    assert re.search(r"squared_attention +package sharper: credit in proportion", checkout.run("list", "rules"))
    dry_run = checkout.run("train", "sapo", "--credit", "squared_attention", "--dry-run")
    assert re.search(r"rule: squared_attention", dry_run)
    made = checkout.run("run-table", "sharper:sharpness", "--profile", "smoke", "--out", "out", "--rows", "squared")
    assert re.search(r"Squared attention", made), made
    first = trainings(checkout)
    checkout.write("sharper/rules.py", function.replace("**2", "**3"))
    assert trainings(checkout) != first  # another rule is another training
    checkout.write("sharper/rules.py", function)
    assert trainings(checkout) == first


def trainings(checkout) -> set[str]:
    """Return the keys of the trainings that the row with the package's rule needs."""
    table = ("sharper:sharpness", "--profile", "smoke", "--out", "out", "--rows", "squared")
    plan = checkout.run("plan", *table, "--json")
    return {cell["checkpoint"] for cell in json.loads(plan)["cells"]}


@pytest.mark.slow
def test_a_paper_is_a_folder_outside_the_package(checkout):
    _, paper, main, protocols, claims, recipe = blocks("adding.md", "yaml")
    (scores,), (commands,) = blocks("adding.md", "csv"), blocks("adding.md", "bash")
    files = {"paper.yaml": paper, "tables/main.yaml": main, "tables/protocols.yaml": protocols}
    files |= {"scores/main.csv": scores, "claims.yaml": claims, "recipes/look_first.yaml": recipe}
    for name, text in files.items():
        (checkout.folder / "lookfirst" / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout.folder / "lookfirst" / name).write_text(text, encoding="utf-8")
    printed = [checkout.run(*line.split()[1:]) for line in commands.splitlines()]
    listed, planned, ran, protocol, reported, explained, audited = printed
    assert "lookfirst:main" in listed
    assert "lookfirst:protocols" in listed
    assert "lookfirst:main under profile smoke" in planned
    assert "GRPO with fewer updates" in ran
    reports = checkout.folder / "runs" / "smoke" / "reports"
    page = (reports / "lookfirst.main.md").read_text(encoding="utf-8")
    assert "47.12" in page  # printed, beside what was measured
    assert "lookfirst.main.html" in reported
    assert "As printed" in protocol
    sides = json.loads((reports / "lookfirst.protocols.json").read_text(encoding="utf-8"))["grids"][0]
    assert sides["columns"][3] == "as printed − as here"
    assert sides["rows"][0][1][0]["text"] == "44.05"
    assert "44.05" in explained
    assert re.search(r"GRPO gains 3.1 points on GeoQA \(3.1\) -> 2.81", audited)  # 46.86 - 44.05
    assert "0.6 in the released code" in " ".join(audited.split())
    assert (reports.parents[1] / "mini" / "reports" / "audit.lookfirst.html").is_file()


@pytest.mark.slow
def test_data_reward_prompt_and_sizes_of_ones_own_are_files_that_four_commands_name(checkout):
    make, reward, term = blocks("own.md", "python")
    profile, recipe = blocks("own.md", "yaml")
    (commands,), (asked,) = blocks("own.md", "bash"), blocks("own.md", "text")
    checkout.python("-c", make)
    files = {"mine.py": reward + term, "longer.yaml": profile, "mine_grpo.yaml": recipe, "asked.txt": asked}
    for name, text in files.items():
        (checkout.folder / "DATA" / name).write_text(text, encoding="utf-8")
    train, by_recipe, signal, evaluate = (line.split()[1:] for line in commands.replace("\\\n", "").splitlines())
    trained = checkout.run(*train)
    assert "rewards/brief/mean" in trained
    assert "credit/" in trained
    described = checkout.run(*by_recipe)
    assert {"rewards/brief/mean", "loss/concise"} <= set(re.findall(r"[\w/]+", described))
    assert re.search(r"atrl +", checkout.run(*signal))
    assert "25 problems x 2" in checkout.run(*evaluate)
    page = (checkout.folder / "runs" / "smoke" / "reports" / "evaluations.html").read_text(encoding="utf-8")
    assert "Say what you see" in page
    assert str(checkout.folder) not in page


TABLE = """
title: Trained on mine
caption: Accuracy in percent.
source: Our own question
label: tab:own_look
baseline: zero_shot
data: DATA/mine.jsonl?question=asked
schedule: minibatch4
columns:
  - {id: geoqa_test, label: GeoQA, task: geoqa_test}
rows:
  - {id: zero_shot, label: Zero-shot}
  - {id: grpo, label: GRPO, recipe: grpo}
"""


@pytest.mark.slow
def test_a_table_trains_on_data_of_ones_own_and_its_page_has_no_path_of_it(checkout):
    checkout.python("-c", blocks("own.md", "python")[0])
    checkout.write("reports/at_rl/tables/own_look.yaml", TABLE)
    made = " ".join(checkout.run("run-table", "own_look", "--profile", "smoke", "--out", "out").split())
    assert "No problem of geoqa_test was found in the training data mine.jsonl" in made
    for page in ("own_look.html", "own_look.md", "own_look.json"):
        assert str(checkout.folder) not in (checkout.folder / "out" / "reports" / page).read_text(encoding="utf-8")
