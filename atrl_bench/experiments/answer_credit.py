"""The credit of each token of stored responses, as training would have given it, from one more forward pass.

    credit_of_responses(model, prompts, responses, config) -> list[TokenCredit]      any model, any prompts
    credit_of_cell(store, key, run_dir) -> {(problem id, repeat): TokenCredit}         of what a cell holds, remembered

Of what was made, nothing is sampled again: the response is read by the model that wrote it, its attention rows are
recorded, and the credit rule does the rest. Texts and numbers stay aligned: the texts of a response join to all of it.

Shapes: T response tokens.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.credit.config import CreditConfig, Reading
from atrl_bench.digests import spec_key
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.cell import load_model
from atrl_bench.evaluation.cell_spec import CellSpec
from atrl_bench.evaluation.data import load_rows, read_problems
from atrl_bench.evaluation.prompts_for import prompts_for, shown_instead
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import LocalModel, find_model, model_inputs, prompt_hash
from atrl_bench.models.prompt import Prompt
from atrl_bench.results.files import write_atomically
from atrl_bench.results.store import Cell, Store

if TYPE_CHECKING:
    from atrl_bench.credit.attention_rows import AttentionRows

READINGS: tuple[Reading, Reading] = ("own", "predicting")
RULE, CONFIG = "atrl", CreditConfig()  # whose credit pages show
DIGITS = 5  # as many as survive another machine's order of adding up
VERSION = 1  # of the remembered files; changes with anything here that could change them
CREDIT_KEY = spec_key({"config": CONFIG.document(), "rule": RULE, "version": VERSION})


@dataclass(frozen=True)
class TokenCredit:
    """The tokens of one response in order; the text of the one that ended it is empty."""

    texts: tuple[str, ...]
    connectivity_T: tuple[float, ...]  # C_i, the debiased attention to the image
    credit_T: tuple[float, ...]  # what the advantage of each token would be multiplied by
    cluster_T: tuple[int, ...]


@dataclass(frozen=True)
class ReadResponse:
    """A response with what the model looked at while it was read again, by which row counts as a token's."""

    texts: tuple[str, ...]
    token_ids: tuple[int, ...]
    attention_B: Mapping[Reading, AttentionRows]


def credit_of_responses(
    model: LocalModel,
    prompts: Sequence[Prompt],
    responses: Sequence[str],
    config: CreditConfig = CONFIG,
    run_seed: int = 0,
) -> list[TokenCredit]:
    from atrl_bench.credit.rules import token_credit

    credits = []
    for read in read_again(model, prompts, responses, config.num_layers):
        seed = zlib.crc32(str((run_seed, list(read.token_ids))).encode())  # as in training
        credit = token_credit(read.attention_B[config.reading], RULE, config, seed)
        credits.append(
            TokenCredit(
                read.texts,
                tuple(round(value, DIGITS) for value in credit.connectivity_T.tolist()),
                tuple(round(value, DIGITS) for value in credit.credit_T.tolist()),
                tuple(credit.cluster_T.tolist()),
            )
        )
    return credits


def read_again(
    model: LocalModel, prompts: Sequence[Prompt], responses: Sequence[str], num_layers: int
) -> Iterator[ReadResponse]:
    import torch

    from atrl_bench.credit.attention_rows import split_attention_rows, visual_columns
    from atrl_bench.credit.capture import install_row_capture

    network, tokenizer = model.model, model.processor.tokenizer
    capture = install_row_capture(network, num_layers)
    try:
        for prompt, response in zip(prompts, responses, strict=True):
            inputs = model_inputs(model.processor, [model.chat_text(prompt)], [prompt], network.dtype)
            token_ids, texts = _tokens(tokenizer, response)
            token_ids, texts = [*token_ids, tokenizer.eos_token_id], [*texts, ""]
            ids_BT = torch.tensor([token_ids])
            inputs["input_ids"] = torch.cat([inputs["input_ids"], ids_BT], dim=1)
            inputs["attention_mask"] = torch.cat([inputs["attention_mask"], torch.ones_like(ids_BT)], dim=1)
            if "mm_token_type_ids" in inputs:
                types = inputs["mm_token_type_ids"]
                inputs["mm_token_type_ids"] = torch.cat([types, torch.zeros_like(ids_BT)], dim=1)
            with torch.no_grad(), capture.record(len(token_ids)) as recording:
                network(**inputs.to(network.device))
            mask, visual = inputs["attention_mask"], visual_columns(network.config, inputs["input_ids"])
            attention_B = {
                reading: split_attention_rows(recording.rows(reading), mask, visual, torch.ones_like(ids_BT))[0]
                for reading in READINGS
            }
            yield ReadResponse(tuple(texts), tuple(token_ids), attention_B)
    finally:
        capture.remove()


def _tokens(tokenizer: Any, text: str) -> tuple[list[int], list[str]]:
    """The token ids of a text, whose `<|image_pad|>` is letters, no image, and its pieces, which join to the text."""
    encoded = tokenizer(text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
    texts, end = [], 0
    for _, stop in encoded["offset_mapping"]:
        # Of a character that takes several tokens, the first one has it.
        texts.append(text[end : max(end, stop)])
        end = max(end, stop)
    if texts:
        texts[-1] += text[end:]
    return list(encoded["input_ids"]), texts


def credit_of_cell(
    store: Store,
    key: str,
    run_dir: RunDir,
    *,
    num_problems: int | None = None,
    answers: Collection[tuple[str, int]] | None = None,
) -> dict[tuple[str, int], TokenCredit]:
    """The credit of a cell's answers, or of these, by the model that gave them, remembered under `credit/`.

    Raises `MissingDataError` where that model or the benchmark's rows are not on this machine.
    """
    cell = _cell(store, key)
    problem_ids = set(store.problem_ids(key)[:num_problems])
    responses = {
        answer: response
        for answer, response in store.responses(key).items()
        if answer[0] in problem_ids and (answers is None or answer in answers)
    }
    # What is beside a store that was repaired or begun anew may be of other answers than it has.
    credit = {
        answer: one
        for answer, one in remembered_credit(key, run_dir).items()
        if answer not in responses or "".join(one.texts) == responses[answer].text
    }
    missing = {answer: response for answer, response in responses.items() if answer not in credit}
    if missing:
        model, prompts = _model(store, cell, run_dir), prompts_of_cell(store, key, run_dir, {a[0] for a in missing})
        # An answer to a prompt that would be another one today has nothing to be read after.
        hashes = {problem_id: prompt_hash(model.chat_text(prompt), prompt) for problem_id, prompt in prompts.items()}
        readable = [answer for answer in missing if hashes.get(answer[0]) == missing[answer].prompt_hash]
        # Equal answers to one problem have equal credit, and are read once.
        texts = list(dict.fromkeys((answer[0], missing[answer].text) for answer in readable))
        of_problems, run_seed = [prompts[problem_id] for problem_id, _ in texts], int(cell.spec["run_seed"])
        computed = credit_of_responses(model, of_problems, [text for _, text in texts], CONFIG, run_seed)
        of_text = dict(zip(texts, computed, strict=True))
        credit |= {answer: of_text[answer[0], missing[answer].text] for answer in readable}
        with contextlib.suppress(OSError):  # a run folder that can only be read can be looked at all the same
            write_atomically(
                _path(key, run_dir), "".join(_line(answer, credit[answer]) for answer in sorted(credit)).encode()
            )
    return {answer: credit[answer] for answer in responses if answer in credit}


def remembered_credit(key: str, run_dir: RunDir) -> dict[tuple[str, int], TokenCredit]:
    """What was computed before; the answer of a damaged line is read by its model again."""
    path, credit = _path(key, run_dir), dict[tuple[str, int], TokenCredit]()
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            problem_id, repeat, *values = json.loads(line)
            credit[problem_id, repeat] = TokenCredit(*map(tuple, values))
        except (ValueError, TypeError):
            continue
    return credit


def is_shaded(key: str, run_dir: RunDir) -> bool:
    """Whether the credit that a page shows of a cell's answers is remembered, or is known not to be had."""
    return _path(key, run_dir).is_file()


def shade(store: Store, key: str, run_dir: RunDir, num_problems: int) -> None:
    """Remember the credit of the answers to the first problems of a cell, or that it cannot be had."""
    try:
        credit_of_cell(store, key, run_dir, num_problems=num_problems)
    except MissingDataError:
        if not is_shaded(key, run_dir):
            write_atomically(_path(key, run_dir), b"")


def shade_changes(store: Store, key: str, baseline: str, run_dir: RunDir) -> None:
    """Remember the credit of the answers whose verdict is not that of another cell, repeat by repeat."""
    was_right, is_right = _right(store, baseline), _right(store, key)
    changed = {answer for answer, right in is_right.items() if was_right.get(answer, right) != right}
    if changed:
        credit_of_cell(store, key, run_dir, answers=changed)


def _right(store: Store, key: str) -> dict[tuple[str, int], bool]:
    return {
        (sample.problem.problem_id, sample.response.repeat): sample.score == 1.0
        for sample in store.samples(key)
        if sample.score is not None
    }


def _path(key: str, run_dir: RunDir) -> Path:
    return run_dir.root / "credit" / f"{key}-{CREDIT_KEY}.jsonl"


def prompts_of_cell(store: Store, key: str, run_dir: RunDir, problem_ids: set[str]) -> dict[str, Prompt]:
    spec = CellSpec.from_dict(_cell(store, key).spec)
    task = find_task(spec.task)
    rows = load_rows(task, run_dir.data_dir(task.folder), spec.limit)
    rows, problems, _ = read_problems(task, rows)
    wanted = rows.select([index for index, problem in enumerate(problems) if problem.problem_id in problem_ids])
    prompts = prompts_for(task, wanted, spec, shown_instead(task, problems, rows, spec))
    return {prompt.problem_id: prompt for prompt in prompts if isinstance(prompt, Prompt)}


def _cell(store: Store, key: str) -> Cell:
    cell = store.cell(key)
    if cell is None:
        raise MissingDataError(f"The store {store.path} has no cell {key}.", next_step="atrl-bench status")
    return cell


def _model(store: Store, cell: Cell, run_dir: RunDir) -> LocalModel:
    spec = CellSpec.from_dict(cell.spec)
    trained = {run.digest: run for run in store.runs() if run.state == "done"}
    run = trained.get(spec.model_digest)
    ref = find_model(spec.model_name if run is None else run_dir.folder_of(run))
    if ref.digest != spec.model_digest:
        raise MissingDataError(
            f"The model {spec.model_name} that gave the answers of cell {cell.key} is not here.",
            why=f"What is called so now has other weights: {ref.digest}, not {spec.model_digest}.",
            next_step=f"atrl-bench evaluate {spec.model_name} --tasks {spec.task} {run_dir.options}",
        )
    return load_model(ref, spec)


def _line(answer: tuple[str, int], credit: TokenCredit) -> str:
    return json.dumps([*answer, credit.texts, credit.connectivity_T, credit.credit_T, credit.cluster_T]) + "\n"
