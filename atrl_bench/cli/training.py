"""The verbs that train outside any table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from atrl_bench.cli.options import (
    COLUMNS_HELP,
    FOLDER,
    STARTING,
    WHERE,
    Options,
    complete_recipes,
    names_of,
    with_options,
)
from atrl_bench.cli.printing import show, yaml_text
from atrl_bench.cli.start import require_consent, starts_here

if TYPE_CHECKING:
    from atrl_bench.experiments.price import Price
    from atrl_bench.experiments.run_dir import RunDir

DATA_HELP = (
    "training set, or your own: a .parquet, .jsonl or .json file, a folder, or OWNER/NAME of the hub; else the recipe's"
)
SET_HELP = "field=value of the recipe or its credit, or a size: learning_rate, batch, max_tokens, kl; repeatable"


@with_options(*FOLDER, *WHERE, *STARTING, "rollouts", "seed", "checkpoints", "report_to")
def train(
    options: Options,
    recipe: Annotated[
        str,
        Argument(
            help="a recipe of `atrl-bench list recipes`, or the path of its YAML file",
            autocompletion=complete_recipes,
        ),
    ],
    credit: Annotated[str | None, Option(help="a credit rule of `atrl-bench list rules`")] = None,
    data: Annotated[str | None, Option(help=DATA_HELP)] = None,
    columns: Annotated[str | None, Option(help=COLUMNS_HELP)] = None,
    set_: Annotated[list[str] | None, Option("--set", help=SET_HELP)] = None,
    model: Annotated[str | None, Option(help="a shipped base, a folder or a hub id; default: the profile's")] = None,
) -> None:
    """Train one recipe and print its checkpoint's folder.

    The same command again resumes.
    """
    from atrl_bench.data.own import with_columns
    from atrl_bench.experiments import cost, memory_check, price, train_command
    from atrl_bench.lab import bases
    from atrl_bench.training.describe import resolved_arguments
    from atrl_bench.training.recipe import load_recipe

    overrides = train_command.recipe_overrides(set_ or [], credit=credit, data=with_columns(data, columns))

    def price_in(run_dir: RunDir) -> Price:
        return price.price_of_training(recipe, load_recipe(recipe, **overrides), run_dir, options.seed)

    if bases.is_base(recipe):
        folder = bases.rebuild(recipe, options.out, quiet=options.as_json, dry_run=options.dry_run)
        show({"checkpoint": folder}, options.as_json)
        return
    run_dir = options.run_dir(model=model, price_in=price_in)
    loaded = load_recipe(recipe, **overrides)
    if options.dry_run:
        if run_dir.profile.rollouts.engine == "verl":
            preview = train_command.verl_preview(loaded, run_dir, options.seed)
        else:
            needs = cost.training_needs(loaded, run_dir.profile, run_dir.rates)
            preview = resolved_arguments(loaded, run_dir.profile, num_devices=max(1, needs.gpus))
            preview |= {"needs": needs.document(), "left": price_in(run_dir).left()}
        show(preview, options.as_json, text=yaml_text(preview))
        return
    quiet, where, seed = options.as_json, options.where, options.seed

    def require_fit() -> None:
        memory_check.require_training_fits(loaded, run_dir, where, seed)

    if not starts_here(price_in(run_dir), options, require_fit=require_fit):
        return
    result = train_command.train_recipe(recipe, overrides, run_dir, where, seed=seed, quiet=quiet)
    if result is not None:
        show(result, options.as_json)


@with_options(*FOLDER)
def key_steps(
    options: Options,
    data: Annotated[str, Argument(help="a training set, such as virl39k")],
    model: Annotated[str, Option(help="the name under which the model is served")],
    base_url: Annotated[str, Option(help="OpenAI-compatible URL that serves it")],
    num_parallel: Annotated[int, Option(min=1, help="requests at a time")] = 8,
    api_key_variable: Annotated[str, Option(help="environment variable with the key")] = "OPENAI_API_KEY",
    limit: Annotated[int | None, Option(min=1, help="only the first problems")] = None,
) -> None:
    """Have a served model extract the key steps of a training set.

    StepGRPO rewards them. The same command again asks only for what is missing.
    """
    from atrl_bench.experiments import train_command
    from atrl_bench.models.chat_client import EndpointConfig

    endpoint = EndpointConfig(base_url, model, api_key_variable=api_key_variable, num_parallel=num_parallel)
    result = train_command.key_steps(data, endpoint, options.run_dir(), limit=limit, quiet=options.as_json)
    show(result, options.as_json)


@with_options(*FOLDER, *STARTING, "seed")
def signal(
    options: Options,
    model: Annotated[str | None, Argument(help="a shipped base, a folder or a hub id; default: the profile's")] = None,
    recipe: Annotated[
        str,
        Option(help="whose training set and loss; without its KL term", autocompletion=complete_recipes),
    ] = "grpo",
    data: Annotated[str | None, Option(help=DATA_HELP)] = None,
    columns: Annotated[str | None, Option(help=COLUMNS_HELP)] = None,
    rules: Annotated[
        str | None, Option(help="credit rules, separated by commas; atrl:partitions=4 for a setting")
    ] = None,
    prompts: Annotated[int, Option(min=9, help="problems whose gradients are measured")] = 96,
    held_out: Annotated[int, Option(min=0, help="problems that one step is tried on")] = 32,
    parameters: Annotated[str, Option(help="whose gradients: all, lora, or a pattern of names")] = "all",
    compare: Annotated[
        tuple[Path, Path] | None, Option(help="two cards that were written before, side by side; measures nothing")
    ] = None,
) -> None:
    """Measure what each credit rule does to the gradient of a checkpoint, without training it.

    By how much a rule multiplies the batch, what one step along it gains on other problems, how often its credit agrees
    with itself. Read the first two together. Ends in a card that says with which rule to train.
    """
    if compare is not None:
        from atrl_bench.lab.signal.card import compare_cards

        show(compare_cards(compare), options.as_json)
        return
    from atrl_bench.data.own import with_columns
    from atrl_bench.lab.signal.price import signal_price
    from atrl_bench.lab.signal.request import signal_request

    run_dir = options.run_dir()
    request = signal_request(
        run_dir,
        model,
        recipe=recipe,
        data=with_columns(data, columns),
        rules=names_of(rules),
        prompts=prompts,
        held_out=held_out,
        seed=options.seed,
        parameters=parameters,
    )
    price = signal_price(request, run_dir)
    if options.dry_run:
        show(price, options.as_json)
        return
    # Asked about by its hours alone: the model that is measured has been fetched.
    require_consent(price, options, is_generated=True)
    from atrl_bench.lab.signal.card import write_card
    from atrl_bench.lab.signal.measure import measured_signal

    record = measured_signal(request, run_dir, quiet=options.as_json)
    card, files = write_card(request, record, run_dir)
    show(card, options.as_json)
    if not options.as_json:
        show([f"Card: {files[0]}", f"      {files[1]}"], as_json=False)


@with_options(*FOLDER, "seed")
def mismatch(
    options: Options,
    model: Annotated[str | None, Argument(help="a shipped base, a folder or a hub id; default: the profile's")] = None,
    engine: Annotated[Literal["vllm", "local"], Option(help="what samples")] = "vllm",
    recipe: Annotated[str, Option(help="whose training set and rewards", autocompletion=complete_recipes)] = "grpo",
    problems: Annotated[int, Option(min=1, help="problems that are answered, each by a group")] = 16,
    tokens: Annotated[
        int | None, Option(min=1, help="length of responses to correct; default: the longest of the profile")
    ] = None,
) -> None:
    """Measure how far a sampler's log-probabilities are from the policy's.

    By position and by what the prompt shows; with the share that each correction leaves out, and the effective sample
    size that it leaves, at this length of response.
    """
    from atrl_bench.analysis.mismatch import mismatch as measured

    run_dir = options.run_dir()
    record = measured(
        run_dir,
        model or run_dir.profile.model,
        engine=engine,
        recipe=recipe,
        problems=problems,
        length=tokens,
        seed=options.seed,
    )
    show(record, options.as_json)
