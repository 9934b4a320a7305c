"""One of several processes that evaluate together; it writes down how many answers its own model gave."""

import json
import os
from pathlib import Path

from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.models.local import LocalModel
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store


def process(folder, data):
    num_answers, generate = 0, LocalModel.generate

    def counted(self, prompts, repeats, sampling):
        nonlocal num_answers
        num_answers += sum(map(len, repeats))
        return generate(self, prompts, repeats, sampling)

    LocalModel.generate = counted
    profile = load_profile("smoke")
    sizes = profile.evaluation.model_copy(update={"batch_size": 3, "temperature": 1.0})
    profile = profile.model_copy(update={"evaluation": sizes})
    with Store.open(Path(folder) / "store.sqlite") as store:
        options = EvaluationOptions(limit=15)
        key = evaluate("mini", "geoqa_test", options, store=store, profile=profile, data_dir=Path(data))
        report = {"state": store.cell(key).state, "num_answers": num_answers}
    (Path(folder) / f"process-{os.environ['RANK']}.json").write_text(json.dumps(report))
