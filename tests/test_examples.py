"""Every example runs, and says what it is for; the notebook runs from top to bottom."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Return a function that runs an example in an empty folder and returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run_example(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run_example


def test_credit_in_your_trainer_trains_and_saves(run, tmp_path):
    said = run("credit_in_your_trainer.py", "--steps", "2")
    share = re.search(r"most credit had (\d+)%", said.replace(" %", "%"))
    assert share, said
    assert int(share[1]) > 15
    assert (tmp_path / "runs" / "credit_in_your_trainer" / "model.safetensors").is_file()


def test_credit_of_a_response_is_drawn(run, tmp_path):
    said = run("credit_of_a_response.py", "--out", "drawn.svg")
    weights = [float(line.split()[0]) for line in said.splitlines()[:-1]]
    assert len(weights) > 5
    assert sum(weights) / len(weights) == pytest.approx(1.0, abs=0.01)
    assert "<svg" in (tmp_path / "drawn.svg").read_text()


def test_a_rule_of_ones_own_is_compared_with_ours(run):
    lines = dict(line.split(maxsplit=1) for line in run("own_rule.py").splitlines())
    assert lines["uniform"].split() == ["1.00"] * 12
    # Twelve tokens, of which the first six get the same: two each.
    assert lines["last_look"].split() == ["2.00"] * 6 + ["0.00"] * 6


def test_a_file_is_graded(run):
    assert "3 of 5 are right." in run("grade_a_file.py", str(EXAMPLES / "answers.jsonl"))


def test_a_benchmark_in_a_package_of_its_own_is_evaluated(checkout):
    folder = EXAMPLES / "own_benchmark"
    project = (folder / "pyproject.toml").read_text()
    checkout.install(project, {f"dots/{path.name}": path.read_text() for path in (folder / "dots").glob("*.*")})
    checkout.python(str(folder / "make_data.py"), "DATA")
    made = checkout.run("evaluate", "mini", "--tasks", "dots_test", "--data-dir", "DATA", "--profile", "smoke")
    assert "8 problems" in made


@pytest.mark.slow
def test_a_term_of_the_loss_and_advantages_in_a_package_of_their_own_are_trained_with(checkout):
    folder = EXAMPLES / "own_objective"
    files = {f"perception/{path.name}": path.read_text() for path in (folder / "perception").glob("*.*")}
    checkout.install((folder / "pyproject.toml").read_text(), files)
    papo, gtpo = re.findall(r"^atrl-bench (train .*)$", (folder / "README.md").read_text(), re.M)
    assert "loss/papo" in checkout.run(*papo.split())
    assert "credit/" in checkout.run(*gtpo.split())


def test_every_example_is_in_their_list():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    names = {
        path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".ipynb"} or (path / "README.md").is_file()
    }
    assert {name for name in names if f"]({name}" not in page} == set()


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "credit_of_a_response.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert "boxed" in "".join(output.get("text", "") for output in outputs)
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
