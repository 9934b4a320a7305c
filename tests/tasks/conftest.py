"""A task of ours as lmms-eval builds it from its file, on rows that are already here."""

import pytest


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
