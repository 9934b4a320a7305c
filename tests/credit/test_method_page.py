"""The snippet of docs/method.md, run as it stands there."""

import re
from pathlib import Path

import pytest
import torch

PUBLISHED_PAGE = Path(__file__).parents[2] / "docs" / "credit_rules.md"
PAGE = Path(__file__).parents[2] / "docs" / "method.md"


def snippet():
    return re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[1].replace("=256", "=12")


def test_the_snippet_prints_a_line_for_every_token_of_a_mini_response(mini_processor, tiny_model, capsys):
    from PIL import Image

    image = Image.effect_noise((112, 56), 80).convert("RGB")
    messages = [
        {"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "What is the sum?"}]}
    ]
    names = {"model": tiny_model.eval(), "processor": mini_processor, "messages": messages}
    torch.manual_seed(0)
    exec(compile(snippet(), str(PAGE), "exec"), names)
    tiny_model.train()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == names["T"] + 1
    assert float(names["credit"].credit_T.mean()) == pytest.approx(1.0, abs=1e-6)
    assert int(names["attention"].visual_S.sum()) == 8
    assert "edge_density" in lines[-1]


def test_the_page_names_every_field_and_every_rule():
    import dataclasses

    from atrl_bench.credit import PRESETS, RULES, CreditConfig

    page = PAGE.read_text(encoding="utf-8")
    of_others = PUBLISHED_PAGE.read_text(encoding="utf-8")
    assert [rule for rule in RULES if f"`{rule}`" not in page and f"## `{rule}`" not in of_others] == []
    literal_table = page[page.index("| field | literal") : page.index("The other gaps")]
    assert set(re.findall(r"^\| `(\w+)` \|", literal_table, re.M)) == set(PRESETS["literal"])
    fields = [field.name for field in dataclasses.fields(CreditConfig)]
    papers_constants = {"min_edge_similarity", "similarity_weight", "importance_weight", "min_neighbour_score"}
    assert [name for name in fields if f"`{name}`" not in page and name not in papers_constants] == []


def test_the_page_of_other_papers_has_each_rule_with_its_source_and_its_needs():
    from atrl_bench.credit import RULES
    from atrl_bench.credit.rule import needs_of

    page = PUBLISHED_PAGE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## )", page, re.M | re.S))
    published = {name: rule for name, rule in RULES.items() if rule.__module__.endswith(".published")}
    assert list(sections) == list(published)
    for name, rule in published.items():
        section, source = sections[name], rule.__doc__
        needs = re.search(r"^- Needs: (.*)$", section, re.M)[1]
        assert set(re.findall(r"`(\w+)`", needs)) == needs_of(rule), name
        assert all(f"- {word}:" in section for word in ("Weight", "Claims", "Read")), name
        # What the code and the page quote is the same paper, or the same repository without one.
        assert re.findall(r"\d{4}\.\d{5}", source) == re.findall(r"\[(\d{4}\.\d{5})\]", section), name
        # The numbers of a rule are the defaults of its arguments.
        for number in (value for value in (rule.__kwdefaults__ or {}).values()):
            written = {f"{number:g}", f"{100 * number:g} %", {0.5: "1/2"}.get(number, f"{number:g}")}
            assert any(text in section for text in written), f"{name}: {number}"
