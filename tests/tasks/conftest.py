"""The problems of a task of ours, and the task as lmms-eval builds it from its file, on rows that are already here."""

import pytest

from atrl_bench.evaluation.data import load_rows, to_problem
from atrl_bench.evaluation.tasks import find_task


@pytest.fixture
def problems_of():
    def read(name, data_dir):
        return [to_problem(find_task(name), row) for row in load_rows(find_task(name), data_dir)]

    return read


@pytest.fixture
def lmms_task():
    from lmms_eval.api.task import ConfigurableMessagesTask
    from lmms_eval.utils import load_yaml_config

    class LoadedTask(ConfigurableMessagesTask):
        def __init__(self, config, rows):
            self.rows = rows
            super().__init__(config=config)

        def download(self, dataset_kwargs=None):  # it would look for the rows on the hub
            self.dataset = self.dataset_no_image = {self.config.test_split: self.rows}

    def build(task, rows, run_seed=0):
        config = load_yaml_config(str(task.yaml_path), mode="full")
        config |= {"process_docs": None, "lmms_eval_specific_kwargs": {"default": {"run_seed": run_seed}}}
        return LoadedTask(config, rows)

    return build
