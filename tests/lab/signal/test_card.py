"""The credit card of a signal: what it advises, its page and its file."""

import json
import math
from dataclasses import replace

import pytest

from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation.cell_spec import EvaluationOptions, cell_spec
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.card import advice_of, compare_cards, write_card
from atrl_bench.lab.signal.efficiency import Efficiency
from atrl_bench.lab.signal.record import RuleSignal, Signal, StepGain
from atrl_bench.lab.signal.request import signal_request
from atrl_bench.profiles import load_profile
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.statistics.means import Estimate

ONE = Efficiency(1.0, 1.0, 1.0)


def signal(*, step: float | None = None, **scaled: tuple[float, float, float]) -> Signal:
    """A signal of 96 prompts whose rules have these efficiencies with Adam; `step` is what one gains over uniform."""
    gain = None if step is None else StepGain(3.0, Estimate(5, 1, 3, 4, 4), Estimate(step, 0.5, 3, 4, 4))
    rules = [
        RuleSignal(name, ONE, Efficiency(*of), 0.2, 0.7, math.nan, gain)
        for name, of in {"uniform": (1.0, 1.0, 1.0), **scaled}.items()
    ]
    return Signal("mini", "virl39k", 96, 768, 1_000_000, 0.3, rules)


def test_a_rule_whose_interval_leaves_one_out_is_advised_the_surest_first():
    advice = advice_of(signal(step=1.0, atrl=(1.5, 1.2, 2.0), random=(2.0, 1.05, 4.0)))
    assert (advice.kind, advice.rule) == ("this rule", "atrl")
    assert advice.sentence == (
        "Train with atrl: worth 1.50 [1.20, 2.00] times the prompts; one step along it gains +1.0 ± 1.6 points more "
        "than uniform credit."
    )


def test_a_rule_whose_step_is_clearly_a_loss_is_not_advised():
    assert advice_of(signal(step=-4.0, atrl=(1.5, 1.2, 2.0))).kind == "cannot tell"


def test_where_no_rule_may_be_worth_a_tenth_it_says_to_train_without():
    advice = advice_of(signal(atrl=(0.9, 0.8, 1.05), random=(1.0, 0.95, 1.09)))
    assert advice.kind == "no credit"
    assert "random" not in advice.sentence
    assert "1.00 [0.95, 1.09]" in advice.sentence


def test_where_it_cannot_tell_it_says_how_many_prompts_would():
    # On a log scale the interval is ln(1.44 / 0.9) / 2 = 0.235 to each side and the factor ln 1.2 = 0.182 from 1:
    # 96 * (0.235 / 0.182)^2 = 159.5 prompts make it as long as that.
    advice = advice_of(signal(atrl=(1.2, 0.9, 1.44), random=(1.0, 0.8, 1.3)))
    assert (advice.kind, advice.rule, advice.prompts) == ("cannot tell", "atrl", 160)
    assert advice.prompts is not None
    assert "about 160 prompts would show that" in advice.sentence
    assert "double the prompts" in advice_of(signal(atrl=(1.2, 0.0, math.nan))).sentence
    asked = replace(signal(atrl=(1.2, 0.9, 1.44)), problems=159)
    assert advice_of(replace(asked, problems=160)).prompts == 160
    assert advice_of(asked).prompts is None
    assert "about 160 prompts would show that, but virl39k has 159 problems." in advice_of(asked).sentence
    doubled = replace(signal(atrl=(1.2, 0.0, math.nan)), problems=191)
    assert "double the prompts and look again, but virl39k has 191 problems." in advice_of(doubled).sentence
    assert "none is worth more than uniform" in advice_of(signal(atrl=(0.8, 0.5, 1.3))).sentence


def test_nobody_is_advised_to_train_with_an_oracle_or_with_noise():
    assert advice_of(signal(oracle_perception=(3.0, 2.0, 4.0), atrl=(1.0, 0.5, 2.0))).rule == "atrl"
    assert "not clearly different from noise" in advice_of(signal(atrl=(math.nan, 0.0, math.inf))).sentence


def test_a_card_is_a_page_and_a_file_and_two_are_compared(tmp_path):
    run_dir, cards = RunDir.at(tmp_path, load_profile("smoke"), None), []
    for seed, of in enumerate([(1.5, 1.2, 2.0), (0.9, 0.8, 1.0)]):
        request = signal_request(run_dir, prompts=96, held_out=0, rules=["atrl"], seed=seed)
        _, files = write_card(request, signal(atrl=of), run_dir)
        page, file = files
        assert ("Train with atrl" if seed == 0 else "Train without credit") in page.read_text()
        cards.append(file)
    content = json.loads(cards[0].read_text())
    assert content["spec"]["data_digest"]
    assert content["advice"]["rule"] == "atrl"
    assert (tmp_path / "reports" / "index.html").is_file()
    content["spec"] |= {"seed": 1, "credit_code": {"mine": "0123"}}  # which only one of them has
    (tmp_path / "own.json").write_text(json.dumps(content))
    assert "Measured differently: credit_code." in list(compare_cards([cards[1], tmp_path / "own.json"]).blocks())
    said = "\n".join(map(str, compare_cards(cards).blocks()))
    assert "Measured differently: seed." in said
    assert "1.50 [1.20, 2.00]" in said
    with pytest.raises(InvalidFileError, match="is no credit card"):
        compare_cards([page, cards[0]])


def test_a_card_names_the_reliance_on_the_picture_where_the_folder_knows_it(tmp_path):
    run_dir = RunDir.at(tmp_path, load_profile("smoke"), None)
    request = signal_request(run_dir, prompts=96, held_out=0, rules=["atrl"])
    unknown, files = write_card(request, signal(atrl=(1.5, 1.2, 2.0)), run_dir)
    assert unknown.reliance == {}
    assert "--image blank" in files[0].read_text()
    data_dir = run_dir.provide(find_task("geoqa_test").folder)
    with run_dir.open_store() as store:
        for image, num_right in ((None, 3), ("blank", 1)):  # of four problems
            options = EvaluationOptions(image=image)
            key = store.add_cell(
                cell_spec("mini", "geoqa_test", options, profile=run_dir.profile, data_dir=data_dir).as_dict()
            )
            store.add_problems(key, [Problem(str(i), str(i), "?", Gold("1")) for i in range(4)])
            store.add_responses(key, [Response(str(i), 0, "h", "1", 1, 0.1, False) for i in range(4)])
            states = ["correct"] * num_right + ["wrong"] * (4 - num_right)
            store.add_verdicts(key, {(str(i), 0): Verdict(state, "1", "fast", "") for i, state in enumerate(states)})
            store.finish_cell(key, expected=4)
    card, _ = write_card(request, signal(atrl=(1.5, 1.2, 2.0)), run_dir)
    ((task, points),) = card.reliance.items()
    assert task == "geoqa_test, blank"
    assert points.startswith("+50.0 ±")
    assert card.document()["advice"]["kind"] == "this rule"
    assert "Reliance on the picture, geoqa_test, blank: +50.0" in "\n".join(map(str, card.blocks()))
