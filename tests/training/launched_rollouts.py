"""Two processes of a training for which vLLM samples; each writes what it is answered before the training and after."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = {"0": range(3), "1": range(3, 8)}  # not as many for the one as for the other


def by_torchrun(order, divided=False):
    """Launch this file in two processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    told = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "ACCELERATE_USE_FSDP": str(divided).lower()}
    command = [sys.executable, *launcher, __file__, *order]
    done = subprocess.run(command, env=os.environ | told, check=False, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr


def answers_of(vllm, base, data, out, profile, *, sharing, launch=by_torchrun):
    """Return, before and after, the tokens and log-probabilities of all rows, and what each process reports."""
    profile = profile.model_copy(update={"rollouts": profile.rollouts.model_copy(update={"tensor_parallel": sharing})})
    out.mkdir()
    launch([vllm, base, data, out, profile.model_dump_json()])
    reports = [json.loads((out / f"process-{rank}.json").read_text()) for rank in ROWS]
    before, after = ([row for report in reports for row in report[when]] for when in ("before", "after"))
    return before, after, reports


def greedy(trainer):
    """Return the likeliest response to each of this process's problems, with its log-probabilities."""
    from trainer_parts import prompts_of

    trainer.vllm.load(trainer.step)
    trainer.vllm.temperature = 0.0
    found = trainer.vllm.sample(prompts_of(trainer, ROWS[os.environ["RANK"]]), 1)
    trainer.vllm.temperature = 1.0
    return [(response.token_ids, response.logprobs) for response in found]


def main(vllm, base, data, out, profile):
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import fake_vllm
    from training.conftest import CoinPool

    from atrl_bench.profiles import Profile
    from atrl_bench.training import rollouts
    from atrl_bench.training.recipe import load_recipe
    from atrl_bench.training.rollout import messages_of
    from atrl_bench.training.run import build_trainer, load_inputs

    if vllm == "fake":
        fake_vllm.install(pytest.MonkeyPatch())
    rollouts.GradingPool = CoinPool
    recipe, sizes = load_recipe("grpo", data="geometry3k"), Profile.model_validate_json(profile)
    with build_trainer(load_inputs(Path(out), recipe, sizes, base, Path(data), 0)) as trainer:
        before = greedy(trainer)
        trainer.train()
        report = {"before": before, "after": greedy(trainer)}
        rows = {"0": [0], "1": []}[os.environ["RANK"]]  # as T-GRPO, where one has no video
        asked = [messages_of(trainer.data.example(row, 0)) for row in rows]
        report["alone"] = len(trainer.respond(asked, ["again"] * len(asked), 2)[0])
        engine = trainer.vllm.llm.llm_engine.model_executor.driver_worker.model_runner.model
        report["weights"] = sum(one.numel() for one in engine.parameters()) if vllm == "real" else None
    (Path(out) / f"process-{os.environ['RANK']}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
