"""A plan says which trainings and cells a table needs, under keys that change with everything that changes a number."""

import itertools
import re
from dataclasses import replace

import pytest
from http_servers import completion

from atrl_bench.cli.printing import text_of
from atrl_bench.digests import spec_key
from atrl_bench.engines.devices import Devices, Machine
from atrl_bench.engines.local import DeadWorkerError, Demand, exit_reason
from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.experiments import jobs, run
from atrl_bench.experiments.cost import gpus_of
from atrl_bench.experiments.definition import load_table
from atrl_bench.experiments.evaluate_command import EvaluationOptions, evaluate_model
from atrl_bench.experiments.plan import (
    Evaluation,
    _digests,
    cell_keys,
    evaluation_keys,
    job_cells,
    obstacle,
    plan_ablation,
    plan_table,
    training_spec,
)
from atrl_bench.experiments.price import price_of, price_of_all
from atrl_bench.experiments.run import run_plan
from atrl_bench.experiments.run_dir import RunDir, read_settings
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.profiles import load_profile
from atrl_bench.report.explain import explain
from atrl_bench.report.table_run import read_table
from atrl_bench.training.recipe import load_recipe

SMOKE, PAPER = load_profile("smoke"), load_profile("paper")
ROWS = ["zero_shot", "grpo", "grpo_atrl"]


def smoke(folder, world=None):
    return RunDir.at(folder, SMOKE, world)


def paper(folder):
    return RunDir.at(folder, PAPER)


def plan(tmp_path, world, profile=SMOKE, **options):
    return plan_table("main_7b", RunDir.at(tmp_path, profile, world), **{"rows": ROWS, **options})


def test_the_base_model_is_evaluated_once_and_every_recipe_trained_once_a_seed(tmp_path, mini_world):
    names = [job.name for job in plan(tmp_path, mini_world, seeds=(0, 1)).jobs]
    assert names == ["zero_shot", "grpo seed 0", "grpo_atrl seed 0", "grpo seed 1", "grpo_atrl seed 1"]


def test_credit_seed_and_profile_each_change_the_key_of_a_training(tmp_path, mini_world):
    base = plan(tmp_path, mini_world, rows=["grpo"]).jobs[0].run_key
    others = {
        plan(tmp_path, mini_world, rows=["grpo_atrl"]).jobs[0].run_key,
        plan(tmp_path, mini_world, rows=["grpo"], seeds=(1,)).jobs[0].run_key,
        plan(tmp_path, mini_world, rows=["grpo"], profile=load_profile("mini")).jobs[0].run_key,
    }
    assert base not in others
    assert len(others) == 3
    assert plan(tmp_path, mini_world, rows=["grpo"]).jobs[0].run_key == base


def test_a_training_after_a_first_stage_changes_its_key_with_that_stage(tmp_path, mini_world):
    stage = tmp_path / "stage.yaml"
    recipe = load_recipe("step_grpo", start_from=str(stage))

    def key(of_stage):
        stage.write_text(f"base: sft_steps\nname: stage\n{of_stage}\n", encoding="utf-8")
        return spec_key(training_spec(recipe, smoke(tmp_path, mini_world), seed=0))

    assert key("") == key("# the same") != key("response: boxed")


def test_only_cells_whose_checkpoint_exists_have_a_key(tmp_path, mini_world):
    planned = plan(tmp_path, mini_world)
    with planned.run_dir.open_store() as store:
        assert {row for row, _ in cell_keys(planned, store)} == {"zero_shot"}


def test_a_data_folder_that_is_not_there_is_an_error_before_anything_runs(tmp_path):
    with pytest.raises(MissingDataError, match="--data-dir"):
        plan(tmp_path, tmp_path / "nowhere")


def test_the_papers_plan_needs_no_gpu_network_or_data(tmp_path):
    cost = price_of(plan_table("main_7b", paper(tmp_path)))
    assert len(cost.trainings) == 12
    assert len(cost.cells) == 65
    # MathVerse: 3,940 rows, eight answers each.
    assert {cell.needs.counts["answers"] for cell in cost.cells if cell.column == "mathverse_testmini"} == {31_520}
    text = text_of(cost)
    lines = [line.split() for line in text.splitlines()]
    head, grpo, dapo = (next(line for line in lines if line[:1] == [name]) for name in ("Trainings", "grpo", "dapo"))
    assert head == ["Trainings", "seed", "GPUs", "GPU-hours", "hours", "disk", "GB"]
    needs = cost.trainings[0].needs
    assert grpo[2:5] == ["4", "x", "67"]
    assert grpo[6:8] == [f"{needs.gpu_hours:.0f}", f"{needs.gpu_hours / 4:.0f}"]
    assert dapo[2:3] == ["4"]  # no reference model


@pytest.mark.parametrize(
    ("table", "chosen", "options"),
    [
        ("main_7b", {}, ""),
        ("main_7b", {"seeds": [0]}, ""),
        ("main_7b", {"rows": ["grpo", "dapo"], "seeds": [2, 1]}, "--rows grpo,dapo --seeds 2,1 "),
        ("main_7b", {"columns": ["geoqa_test"]}, "--columns geoqa_test "),
        ("grouping", {}, ""),  # it is trained with three seeds of its own
        ("grouping", {"seeds": [0, 1, 2]}, ""),
        ("grouping", {"seeds": [0]}, "--seeds 0 "),
    ],
)
def test_the_command_of_a_plan_is_about_the_same_rows_columns_and_seeds(table, chosen, options, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    _digests.cache_clear()
    planned = plan_table(table, paper(tmp_path), **chosen)
    command = f"atrl-bench run-table {table} {options}--profile paper --out {tmp_path}"
    assert planned.command == command
    # Its model was never fetched here, and no test asks the hub.
    assert price_of(planned).next == f"atrl-bench fetch {table} --profile paper --out {tmp_path}"


def test_the_next_command_of_all_plans_keeps_the_seeds_that_were_given(tmp_path):
    def following(seeds):
        plans = [plan_table(name, paper(tmp_path), seeds=seeds) for name in ("main_7b", "grouping")]
        return price_of_all(plans).next

    assert following(None) == f"atrl-bench run-table all --profile paper --out {tmp_path}"
    assert following([0]) == f"atrl-bench run-table all --seeds 0 --profile paper --out {tmp_path}"
    assert following([0, 1, 2]) == f"atrl-bench run-table all --seeds 0,1,2 --profile paper --out {tmp_path}"


def test_what_two_tables_share_is_planned_once(tmp_path):
    """Bias correction trains three rows on GeoQA-8K; a second look at the same table finds nothing new to do."""
    once, again = (plan_table("bias_correction", paper(tmp_path)) for _ in range(2))
    cost = price_of_all([once, again])
    assert [(counts["trainings"], counts["cells"]) for _, counts in cost.tables] == [(3, 4), (0, 0)]
    # 3,940 rows of MathVerse, eight answers each, for four rows of the table.
    assert cost.left()["answers"] == 4 * 31_520
    assert cost.left()["gpu_hours"] > 0
    lines = text_of(cost).splitlines()
    assert [line.split()[:3] for line in lines if line.startswith("bias")] == [
        ["bias_correction", "3", "4"],
        ["bias_correction", "0", "0"],
    ]
    assert max(map(len, lines[1:-1])) <= 80


def test_a_row_whose_process_dies_is_reported_as_failed_with_the_reason_and_its_neighbour_is_not(tmp_path, monkeypatch):
    def die_and_go_on(_, demands, machine, num_workers):
        dies, goes_on = sorted((job for job, _ in demands), key=lambda job: job.name != "grpo seed 0")
        with planned.run_dir.open_store() as store:  # as far as a worker gets before it dies
            store.add_run(dies.model.spec)
        return [(dies, DeadWorkerError(exit_reason(-9))), (goes_on, None)]

    monkeypatch.setattr(run, "side_by_side", die_and_go_on)
    planned = plan_table("main_7b", smoke(tmp_path), rows=["grpo", "zero_shot"], columns=["mathvision_testmini"])
    result = run.run_plan(planned, Machine(), quiet=True)
    reason = "Its process was killed by signal 9 (SIGKILL: is memory short?), 3 times."
    assert result.failures == {"grpo seed 0": reason}
    with planned.run_dir.open_store() as store:
        cells = {row.id: row.cells[0] for row in read_table(planned, store).rows}
    assert (cells["grpo"].state, cells["grpo"].reason) == ("failed", reason)
    assert cells["zero_shot"].state != "failed"


@pytest.fixture
def counted(monkeypatch):
    """The names of the jobs that are carried out: by being written down, and nothing else."""
    done = []

    def write_down(_, demands, machine, num_workers):
        done.extend(job.name for job, _ in demands)
        return [(job, None) for job, _ in demands]

    monkeypatch.setattr(run, "side_by_side", write_down)
    return done


def test_a_suite_is_answered_task_by_task_and_a_video_at_each_number_of_frames(tmp_path):
    plan_of_scale = plan_table("scale_32b", paper(tmp_path), columns=["mmmu_pro"], rows=["instruct"])
    assert plan_of_scale.jobs[0].evaluations == (
        Evaluation("mmmu_pro_standard", EvaluationOptions()),
        Evaluation("mmmu_pro_vision", EvaluationOptions()),
    )
    plan_of_video = plan_table("video", paper(tmp_path), columns=["vsi_16", "vsi_64"])
    asked = tuple(Evaluation("vsi_bench", EvaluationOptions(frames=frames)) for frames in (16, 64))
    assert plan_of_video.jobs[0].evaluations == asked


def test_a_suites_column_has_the_keys_of_all_its_parts_and_frames_change_a_key(tmp_path):
    planned = plan_table("scale_32b", smoke(tmp_path), columns=["mmmu_pro"], rows=["instruct"])
    videos = plan_table("video", smoke(tmp_path), columns=["mmvu_16", "mmvu_32"])
    with planned.run_dir.open_store() as store:
        job = planned.jobs[0]
        assert job_cells(job, planned, store) == {"mmmu_pro": tuple(evaluation_keys(job, planned, store).values())}
        assert len(set(evaluation_keys(job, planned, store).values())) == 2
        assert len(set(evaluation_keys(videos.jobs[0], videos, store).values())) == 2


def test_a_row_has_its_own_base_model_and_the_mini_model_stands_for_every_one(tmp_path, mini_world):
    rows = ["zero_shot_7b", "zero_shot_3b", "grpo_7b", "grpo_3b"]
    models = [job.model for job in plan_table("cross_dataset", paper(tmp_path), rows=rows).jobs]
    assert models == ["Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-VL-3B-Instruct"] * 2
    jobs = plan_table("cross_dataset", smoke(tmp_path, mini_world), rows=rows).jobs
    assert [job.model for job in jobs] == ["mini"] * 4
    assert jobs[2].run_key != jobs[3].run_key  # trained on other data


def test_base_models_that_one_model_stands_for_are_answered_for_once(tmp_path, mini_world, counted):
    rows = ["zero_shot_7b", "zero_shot_3b"]
    planned = plan_table("cross_dataset", smoke(tmp_path, mini_world), rows=rows)
    run_plan(planned, Machine())
    assert counted == ["zero_shot_7b"]
    first, second = planned.jobs
    run_plan(replace(planned, jobs=(replace(first, evaluations=first.evaluations[1:]), second)), Machine())
    assert counted[1:] == rows, "the second is asked what the first is not"


def test_a_metric_that_a_task_does_not_have_is_told_before_anything_is_answered(tmp_path, mini_world, counted):
    planned = plan_table("main_7b", smoke(tmp_path, mini_world), rows=["zero_shot"], columns=["geoqa_test"])
    (column,) = planned.definition.columns
    columns = (column.model_copy(update={"metric": "best@2"}),)
    with pytest.raises(UnknownNameError, match="Unknown metric 'best@2'"):
        run_plan(replace(planned, definition=planned.definition.model_copy(update={"columns": columns})), Machine())
    assert counted == []


def test_only_the_rows_asked_for_are_carried_out(tmp_path, mini_world, counted):
    planned = plan_ablation("hard_truncation", smoke(tmp_path, mini_world), ["topk=0.35"])
    run_plan(planned, Machine())
    labels = [job.row.label for job in planned.jobs if job.name in counted]
    assert labels == ["Zero-shot", "GRPO (Uniform weighting)", "Hard truncation (top 35%)"]
    assert read_settings(tmp_path).points == {"hard_truncation": (("kept_fraction=0.35",),)}


def test_tables_share_the_trainings_they_have_in_common(tmp_path, mini_world):
    def trainings(name: str) -> set[str]:
        jobs = plan_table(name, smoke(tmp_path, mini_world), seeds=[0]).jobs
        return {job.run_key for job in jobs if job.run_key}

    assert len(trainings("kl_free") & trainings("hard_truncation") & trainings("grouping")) == 1  # GRPO + AT-RL
    assert len(trainings("cluster_refinement") & trainings("neighbourhood_expansion") & trainings("main_7b")) == 1
    assert len(trainings("bias_correction") & trainings("cross_dataset")) == 1  # GRPO on GeoQA-8K
    assert len(trainings("grouping") & trainings("cross_dataset")) == 1  # GRPO on Geometry-3K


def test_a_benchmark_that_fails_does_not_keep_the_others_from_being_answered(tmp_path, mini_world, monkeypatch):
    asked = []

    def answer_task(store, model, task, *_):
        asked.append(task)
        if task == "geoqa_test":
            raise MissingDataError("no GeoQA")

    monkeypatch.setattr(jobs, "answer_task", answer_task)
    planned = plan(tmp_path, mini_world, rows=["zero_shot"])
    with pytest.raises(MissingDataError, match="no GeoQA"):
        jobs.run_job(jobs.job_of_row(planned.jobs[0], planned.run_dir), Devices())
    assert asked == [column.task for column in load_table("main_7b").columns]


def test_a_benchmark_that_may_not_run_its_programs_is_not_measured_and_no_failure(tmp_path, monkeypatch):
    monkeypatch.delenv("ATRL_BENCH_ALLOW_CODE", raising=False)
    obstacle.cache_clear()
    monkeypatch.setattr(jobs, "answer_task", lambda *_, **__: pytest.fail("it was asked"))
    columns = ["chartmimic"]
    planned = plan_table("scale_32b", smoke(tmp_path), rows=["instruct"], columns=columns)
    job = jobs.job_of_row(planned.jobs[0], planned.run_dir)
    jobs.run_job(job, Devices())
    with planned.run_dir.open_store() as store:
        assert jobs.is_done(job, store)
        cell = read_table(planned, store).rows[0].cells[0]
    obstacle.cache_clear()
    assert cell.state == "not measured"
    assert cell.reason == (
        "Programs written by models are not allowed to run. Give run-table, ablate or evaluate --allow-code, or set "
        "ATRL_BENCH_ALLOW_CODE=1 in the environment."
    )
    assert cell.command.endswith("--rows instruct --columns chartmimic --allow-code")


def test_a_row_behind_an_endpoint_is_measured_as_far_as_it_was_asked_with_the_names_it_answers_by(tmp_path, serve):
    planned = plan_table("scale_32b", smoke(tmp_path), rows=["instruct", "gpt_4o"], columns=["textvqa", "infovqa"])
    assert [job.row.id for job in planned.jobs] == ["instruct"]  # no table asks an endpoint

    def cells():
        with planned.run_dir.open_store() as store:
            return read_table(planned, store).rows[1].cells

    assert [cell.state for cell in cells()] == ["not measured"] * 2
    command = cells()[0].command
    assert command == (
        "atrl-bench evaluate gpt-4o-2024-11-20 --base-url URL --tasks textvqa_val,infovqa_val --profile smoke"
    )
    name, names = command.split()[2], itertools.cycle(["gpt-4o-2024-11-20", "gpt-4o-mini", "gpt-4o-2024-11-20-eu"])

    def by_turns(_):
        return completion("It says \\boxed{7}.", model=next(names))

    said = evaluate_model(
        name,
        ["textvqa_val"],
        EvaluationOptions(endpoint=EndpointConfig(serve(answer=by_turns).url, name)),
        smoke(tmp_path),
        quiet=True,
    )
    assert "\n  answered as gpt-4o-2024-11-20-eu, gpt-4o-mini" in text_of(said)
    textvqa, infovqa = cells()
    assert (textvqa.state, infovqa.state) == ("measured", "not measured")
    assert textvqa.counts.samples == textvqa.num_expected * SMOKE.evaluation.num_repeats
    assert {("model_name", name), ("answered as", "gpt-4o-2024-11-20-eu, gpt-4o-mini")} <= set(textvqa.provenance)
    behind = text_of(explain(planned, "gpt_4o", "textvqa"))
    assert re.search(r"answered as +gpt-4o-2024-11-20-eu, gpt-4o-mini\n", behind)


def test_the_plan_of_a_suite_counts_the_rows_of_its_parts(tmp_path):
    cost = price_of(plan_table("scale_32b", paper(tmp_path), columns=["mmmu_pro"]))
    assert {cell.needs.counts["answers"] for cell in cost.cells} == {2 * 1_730 * 8}
    assert {cell.row for cell in cost.cells} == {"instruct", "vppo", "ours", "instruct_72b"}
    assert set(cost.served) == {"llama_4_scout", "claude_35_sonnet", "gemini_20_flash", "gpt_4o"}
    assert "atrl-bench evaluate gpt-4o-2024-11-20 --base-url URL --tasks mmmu_pro" in text_of(cost)


def test_a_training_gets_the_gpus_of_its_estimate_or_an_even_share_and_an_evaluation_all_that_are_free(tmp_path):
    eight = Machine(tuple("01234567"))
    base, trained = jobs_of("main_7b", paper(tmp_path), rows=["zero_shot", "grpo"])
    least = gpus_of(trained.model.recipe, load_profile("paper"))
    assert 1 < least <= 8
    assert run.demand(trained, eight, num_jobs=9) == Demand(least, least)
    assert run.demand(trained, eight, num_jobs=1) == Demand(least, 8)
    assert run.demand(base, eight, num_jobs=9) == Demand(1, 8)
    assert run.demand(trained, Machine(), num_jobs=1) == Demand(0, 0)
    # The CPU will do for the mini model, unless the user names GPUs.
    [mini] = jobs_of("main_7b", smoke(tmp_path), rows=["grpo"])
    assert run.demand(mini, eight, num_jobs=1) == Demand(0, 0)
    assert run.demand(mini, Machine(tuple("01"), is_chosen=True), num_jobs=9) == Demand(1, 1)


@pytest.mark.parametrize("of_profile", [smoke, paper])
def test_models_that_are_there_begin_then_seed_by_seed_the_longest_training(of_profile, tmp_path):
    jobs = jobs_of("main_7b", of_profile(tmp_path), rows=["zero_shot", "sapo", "grpo"], seeds=[1, 0])
    names = ["zero_shot", "grpo seed 1", "sapo seed 1", "grpo seed 0", "sapo seed 0"]
    assert [job.name for job in run.longest_first(jobs)] == names


def test_a_server_gets_as_many_gpus_as_hold_its_model_at_least(tmp_path):
    eight, engine = Machine(tuple("01234567")), Engine("vllm", "0")
    served = replace(paper(tmp_path), engine=engine)
    [instruct] = jobs_of("scale_32b", served, rows=["instruct_72b"])
    # 147 GB of weights: 37 on each of four GPUs, beside 15 of keys and values and 9 in reserve.
    assert run.demand(instruct, eight, num_jobs=1) == Demand(4, 8)
    assert run.demand(*jobs_of("scale_32b", paper(tmp_path), rows=["instruct_72b"]), eight, num_jobs=1) == Demand(1, 8)
    assert run.demand(*jobs_of("main_7b", served, rows=["zero_shot"]), eight, num_jobs=1) == Demand(1, 8)
    mini = replace(smoke(tmp_path), engine=engine)
    assert run.demand(*jobs_of("main_7b", mini, rows=["zero_shot"]), eight, num_jobs=1) == Demand(0, 0)


def jobs_of(table: str, run_dir: RunDir, **selection) -> list[jobs.EvaluationJob]:
    return [jobs.job_of_row(job, run_dir) for job in plan_table(table, run_dir, **selection).jobs]


def test_a_price_by_vllm_stands_beside_the_price_and_takes_its_place_where_the_folder_is_served(tmp_path):
    selection = {"rows": ["zero_shot"], "columns": ["geoqa_test"]}
    here = price_of(plan_table("main_7b", paper(tmp_path), **selection))
    # 754 problems with eight answers of 400 tokens at 2,500 tokens a second, after prompts of 1,224 tokens.
    by_vllm = (754 * 8 * 400 / 2500 + 754 * 1224 * 2 * 8.29e9 / 124.8e12) / 3600
    assert here.gpu_hours_by_vllm == pytest.approx(by_vllm, abs=0.01)
    assert here.gpu_hours > 2 * by_vllm
    assert f"If vLLM sampled all rollouts and gave all answers: {by_vllm:.1f} GPU-hours." in text_of(here)
    served = replace(paper(tmp_path), engine=Engine("vllm", "0.31.0"))
    assert price_of(plan_table("main_7b", served, **selection)).gpu_hours == here.gpu_hours_by_vllm
