"""One reader of YAML: fast, in PyYAML's words where a text is none, and never the end of the process."""

import pytest
import yaml

from atrl_bench.resources import folder
from atrl_bench.settings import read_yaml

SHIPPED = sorted(path for name in ("recipes", "reports") for path in folder(name).rglob("*.yaml"))


def test_every_shipped_file_says_what_pyyaml_reads_in_it():
    texts = [path.read_text(encoding="utf-8") for path in SHIPPED]
    assert len(texts) > 20
    assert [read_yaml(text) for text in texts] == [yaml.safe_load(text) for text in texts]


def test_a_value_behind_a_tag_is_read_as_both_and_other_tags_are_refused():
    assert read_yaml("score: !function geoqa_test.score", "!function") == {"score": "!function geoqa_test.score"}
    with pytest.raises(yaml.YAMLError):
        read_yaml("score: !function geoqa_test.score")


@pytest.mark.parametrize("text", ["a: [1, 2", "a: b: c", "\ta: 1", 'a: "x'])
def test_what_is_no_yaml_is_told_with_its_line(text):
    with pytest.raises(yaml.YAMLError) as fast:
        read_yaml(text)
    with pytest.raises(yaml.YAMLError) as slow:
        yaml.safe_load(text)
    assert str(fast.value) == str(slow.value)


@pytest.mark.parametrize("depth", [4_000, 100_000])
def test_brackets_without_end_are_an_error_and_no_crash(depth):
    with pytest.raises((yaml.YAMLError, RecursionError)):
        read_yaml("[" * depth)
