"""The layouts of datasets by their file names alone, and what a row may name."""

import pytest

from atrl_bench.data.layout import holding, is_whole, own_file, path_inside, split_files


@pytest.mark.parametrize(
    ("names", "split", "config", "found"),
    [
        (["data/test-00000-of-00001.parquet", "README.md"], "test", None, ["data/test-00000-of-00001.parquet"]),
        (["test.parquet", "testmini.parquet"], "test", None, ["test.parquet"]),
        (["testmini.parquet", "testmini_text_only.parquet"], "testmini", "testmini", ["testmini.parquet"]),
        (["A/val-0.parquet", "B/val-0.parquet"], "val", "B", ["B/val-0.parquet"]),
        (["val-0.parquet"], "val", "B", ["val-0.parquet"]),  # a local copy of the one subset
        (["A/val-0.parquet"], "val", "B", []),
        (["A/val-0.parquet", "B/val-0.parquet"], "val", None, ["A/val-0.parquet", "B/val-0.parquet"]),  # by subject
        (["ten (A-J)/test-0.parquet", "vision/test-0.parquet"], "test", "ten (A-J)", ["ten (A-J)/test-0.parquet"]),
        (["default/train/0000.parquet", "default/test/0000.parquet"], "test", None, ["default/test/0000.parquet"]),
        (["B/test/0001.parquet", "B/test/0000.parquet"], "test", "B", ["B/test/0000.parquet", "B/test/0001.parquet"]),
        (["test.json", "images/test.parquet.png"], "test", None, []),
    ],
)  # fmt: skip
def test_the_files_of_a_split_are_found_in_every_layout(names, split, config, found) -> None:
    assert split_files(names, split, config) == found


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["test.parquet"], True),
        (["test-00000-of-00002.parquet"], False),
        (["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"], True),
        ([], False),
    ],
)
def test_a_split_is_whole_when_every_shard_it_counts_is_there(names, whole) -> None:
    assert is_whole(names) is whole


def test_all_subsets_count_together_where_none_is_called_all() -> None:
    four = [f"{name}/test-00000-of-00001.parquet" for name in ("A", "B", "C", "D")]
    assert split_files(four, "test", "All") == four
    assert split_files(["All/test-0.parquet", *four], "test", "All") == ["All/test-0.parquet"]
    assert is_whole(four)
    assert not is_whole([*four, "More/test-00001-of-00002.parquet"])
    assert split_files(four, "test", "History") == []  # a subset that is not there is not all the others


@pytest.mark.parametrize(
    "name", ["../secret.png", "/etc/passwd", "a/../../secret.png", "link/secret.png", "linked.png"]
)
def test_a_row_cannot_name_a_file_outside_its_folder_not_even_through_a_link(tmp_path, name) -> None:
    root, secret = tmp_path / "data", tmp_path / "secret.png"
    root.mkdir()
    secret.write_bytes(b"secret")
    (root / "link").symlink_to(tmp_path)
    (root / "linked.png").symlink_to(secret)
    with pytest.raises(ValueError, match="outside its folder"):
        path_inside(root, name)
    assert not own_file(root, name).exists()
    assert own_file(root, name).is_relative_to(root)


def test_a_folder_that_is_a_link_itself_is_as_good_as_any(tmp_path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.png").touch()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    assert path_inside(tmp_path / "data", "a.png").is_file()


def test_a_data_folder_stands_for_the_datasets_that_it_has(tmp_path) -> None:
    (tmp_path / "geoqa").mkdir()
    assert holding(tmp_path, "geoqa") == tmp_path
    assert holding(tmp_path, "mathvista") is None
    assert holding(None, "geoqa") is None
