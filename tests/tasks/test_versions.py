"""A task's version: a number for what is shipped, and a hash beside it for what somebody changed or brought.

python tests/tasks/test_versions.py        writes down the task files as they are now: `tasks/_shipped.json`
"""

import json
import shutil
from pathlib import Path

import pytest

from atrl_bench.digests import file_digest
from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation import hooks, tasks
from atrl_bench.evaluation.tasks import find_task, list_tasks
from atrl_bench.resources import folder

SHIPPED = folder("tasks") / "_shipped.json"
CHANGED = """\
Task files are not as tasks/_shipped.json has them. Bump `version:` in the YAML file of each task that asks something
else now, or takes something else for right: no old answer may count for a new question.
Then: python tests/tasks/test_versions.py"""


def as_they_are() -> dict[str, str]:
    files = [path for path in sorted(folder("tasks").iterdir()) if path.suffix in (".py", ".yaml")]
    return {path.name: file_digest([path]) for path in files if path.name != "_published.yaml"}


def test_the_task_files_are_those_that_their_numbers_stand_for() -> None:
    assert json.loads(SHIPPED.read_text(encoding="utf-8")) == as_they_are(), CHANGED


@pytest.mark.parametrize("task", list_tasks(), ids=lambda task: task.name)
def test_a_shipped_task_is_named_by_the_numbers_of_its_file_and_of_the_hooks(task) -> None:
    assert task.version == f"{task.config['metadata']['version']}.{hooks.VERSION}"


@pytest.mark.parametrize(
    "changed", ["mathverse_text_only.yaml", "mathverse_testmini.py", "mathverse_testmini.yaml", "_protocol.yaml"]
)
def test_an_edit_of_any_file_of_a_task_is_another_version_until_it_is_undone(tmp_path, changed) -> None:
    copy = shutil.copytree(folder("tasks"), tmp_path / "tasks")

    def version(name: str) -> str:
        path = copy / f"{name}.yaml"
        return tasks._task(path, tasks._read(path)).version

    shipped = find_task("mathverse_text_only").version
    assert version("mathverse_text_only") == shipped
    before = (copy / changed).read_bytes()
    (copy / changed).write_bytes(before + b"\n# as I like it\n")
    assert version("mathverse_text_only").startswith(f"{shipped}-")
    assert version("vsi_bench").startswith(f"{shipped}-") == (changed == "_protocol.yaml")
    (copy / changed).write_bytes(before)
    assert version("mathverse_text_only") == shipped


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("yaml", "  title: Dots", "", "It has no field 'title'"),
        ("yaml", "  version: 1.0", "", "It has no field 'version'"),
        ("yaml", "test_split: test", "", "It has no field 'test_split'"),
        ("yaml", "metadata:", "metadata: [", "ParserError"),
        ("yaml", "_protocol.yaml", "nope.yaml", "No such file or directory: nope.yaml"),
        ("py", "def gold", "def gold(:", "SyntaxError"),
        ("py", "def gold(row):", "gold = del_gold\n\n\ndef other(row):", "NameError"),
    ],
)
def test_a_mistake_in_a_task_of_ones_own_is_told_with_its_file(tmp_path, file, old, new, told) -> None:
    copy = shutil.copytree(Path(__file__).parents[2] / "examples" / "own_benchmark" / "dots", tmp_path / "dots")
    path = copy / f"dots_test.{file}"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    def read() -> None:
        task = tasks._task(copy / "dots_test.yaml", tasks._read(copy / "dots_test.yaml"))
        assert task.version
        assert task.code

    with pytest.raises(InvalidFileError, match=f"dots_test.{file} is no file of a task") as raised:
        read()
    assert told in str(raised.value)


if __name__ == "__main__":
    SHIPPED.write_text(json.dumps(as_they_are(), indent=1) + "\n", encoding="utf-8")
