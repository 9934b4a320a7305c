"""A training set of the user's own: a file, a folder or a dataset of the hub, with columns by their usual names.

    mine.parquet, mine.jsonl, mine.json, a folder with one of these or with train*.parquet, owner/name of the hub
    mine.jsonl?question=prompt&answer=gold     what other columns are called

A row has a question and an answer, and may have images (embedded, or files below the folder of the table), videos and
options. `question` may be a conversation as OpenAI, TRL, verl and LLaVA write it, with its images in it; its last turn
is the answer where there is no column of its own. Whatever else a row has is handed to rewards by its name.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from atrl_bench.data.hub_folder import HubFolder
from atrl_bench.data.layout import own_file
from atrl_bench.data.pictures import ENCODED
from atrl_bench.data.published import Publication
from atrl_bench.data.tables import SUFFIXES, TEXT_SUFFIXES, column_names, kind_of, read_light_rows
from atrl_bench.errors import InvalidFileError, MissingDataError

PAIRS = ("chosen", "rejected")  # columns of a file of preference pairs
OF_CARDS = ("dataset_infos.json", "dataset_dict.json", "dataset_info.json", "state.json")  # no tables
LETTERS = "ABCDEFGHIJKLMNOP"  # of options: as many as any benchmark here has, and no row may have more
YES_OR_NO = {True: ("Yes", "True"), False: ("No", "False")}
# What columns are usually called, best known first.
USUAL = {
    "question": ("problem", "question", "prompt", "query", "messages", "conversations"),
    "answer": ("answer", "solution", "gold", "ground_truth", "label", "reward_model", "messages", "conversations"),
    "image": ("images", "image", "picture", "image_path", "image_paths", "image_url", "image_urls", "img"),
    "video": ("videos", "video", "video_path"),
    "options": ("options", "choices"),
}
NEEDED = ("question", "answer")
OF_PICTURES = "metadata", "file_name"  # the table of a folder of pictures as `datasets` reads one, and its column


def with_columns(data: str | None, columns: str | None) -> str | None:
    """The name of a set with `question=prompt,answer=gold` in it, its path written out."""
    if data is not None and is_own(data):
        data = resolved(data)
    if columns is None:
        return data
    if data is None or not is_own(data):
        raise InvalidFileError(
            "--columns is for a training set of your own.", next_step="give its file or folder as --data"
        )
    pairs = [part.partition("=") for part in columns.split(",")]
    if bad := [name for name, equals, column in pairs if name not in USUAL or not equals or not column]:
        raise InvalidFileError(
            f"--columns {columns!r} does not say what {bad[0]!r} is called.",
            why=f"It maps {', '.join(USUAL)}.",
            next_step="write --columns question=prompt,answer=gold",
        )
    return f"{data}?" + "&".join(f"{name}={quote(column)}" for name, _, column in pairs)


def is_own(name: str) -> bool:
    """Whether this names a file, a folder or a dataset of the hub, and not a set that is known here."""
    path = name.partition("?")[0]
    return kind_of(path) in SUFFIXES or "/" in path or path.startswith(("~", ".")) or Path(path).exists()


def short(name: str) -> str:
    """The name without its folders: what a key and a page say of a set whose contents name it."""
    path, mark, columns = name.partition("?")
    return name if HubFolder.named(path) is not None else f"{Path(path).name}{mark}{columns}"


def resolved(name: str) -> str:
    """The name with its path written out, so that it means the same from any folder."""
    path, mark, columns = name.partition("?")
    if HubFolder.named(path) is not None:
        return name
    return f"{Path(path).expanduser().resolve()}{mark}{columns}"


def own_fields(name: str) -> dict[str, Any]:
    """What a `TrainingSet` is to say of it."""
    path, _, columns = resolved(name).partition("?")
    of_hub = HubFolder.named(path)
    tables = _tables(Path(path), name) if of_hub is None else of_hub.bring_tables(partial(_train_tables, path))
    root = Path(path) if of_hub is None else of_hub.root
    fields = _described(root, tuple(tables), columns, max(table.stat().st_mtime_ns for table in tables))
    return fields if of_hub is None else fields | {"name": path, "title": path}


@cache
def _described(path: Path, tables: tuple[Path, ...], columns: str, _changed: int) -> dict[str, Any]:
    rows = [row for table in tables for row in read_light_rows(table)]
    of_tables = [column_names(table) for table in tables if kind_of(table) not in TEXT_SUFFIXES]
    if not rows:
        raise InvalidFileError(f"{path} has no rows.", next_step="fetch or copy it again")
    names = list(dict.fromkeys(name for some in (*of_tables, *rows) for name in some))
    root = path if path.is_dir() else path.parent
    described: dict[str, Any] = {
        "name": path.name,
        "title": path.name,
        "folder": str(path),
        "hub_id": None,
        "num_rows": len(rows),
        "file": path,
        "publication": Publication(tables=tuple(str(table.relative_to(root)) for table in tables)),
    }
    if set(PAIRS) <= set(names):
        return described | {"answer": PAIRS[0], "rejected": PAIRS[1]}
    mapped = dict(parse_qsl(columns))
    if tables[0].stem == OF_PICTURES[0] and OF_PICTURES[1] in names:
        mapped = {"image": OF_PICTURES[1]} | mapped
    chosen = _columns(names, mapped, path)
    asked, shown = chosen["question"], [chosen[kind] for kind in ("image", "video") if kind in chosen]
    alone = [row for row in rows if not as_list(row.get(chosen.get("image", "")))]
    within = [media_within(row.get(asked), "image") for row in alone]
    named = [column for column in shown if any(file_names(row.get(column)) for row in rows)]
    return described | {
        "question": (asked,),
        "answer": chosen["answer"],
        "images": (chosen["image"],) if "image" in chosen else (),
        "videos": chosen.get("video", ""),
        "options": chosen.get("options", "options"),
        "media_columns": (*named, *([asked] if any(map(file_names, within)) else [])),
        "reading": "images in conversations" if any(within) else "",
        "problem_id": next((column for column in ("problem_id", "id", "qid", "index") if column in names), None),
        "takes_text": True,
    }


def _columns(names: Sequence[str], mapped: Mapping[str, str], path: Path) -> dict[str, str]:
    chosen = dict(mapped)
    for kind, usual in USUAL.items():
        if found := next((column for column in usual if column in names), None):
            chosen.setdefault(kind, found)
    if missing := [kind for kind in NEEDED if kind not in chosen]:
        raise InvalidFileError(
            f"{path} has no column that is known to be the {missing[0]}.",
            why=f"Its columns are {', '.join(names)}.",
            next_step=f"--columns {missing[0]}=COLUMN",
        )
    if unknown := [column for column in chosen.values() if column not in names]:
        raise InvalidFileError(
            f"{path} has no column {unknown[0]!r}.",
            why=f"Its columns are {', '.join(names)}.",
            next_step="name one of these with --columns",
        )
    return chosen


def _tables(path: Path, name: str) -> list[Path]:
    if path.is_file():
        if path.suffix and kind_of(path) not in SUFFIXES:
            read = f"Tables are read from {', '.join(SUFFIXES)}."
            raise InvalidFileError(f"{path} is no such table.", why=read, next_step="write it as one of these")
        return [path]
    if not path.is_dir():
        raise MissingDataError(
            f"There is no data set {name}.",
            why="It is no address of the hub." if name.startswith("hf:") else f"{path} is not on this machine.",
            next_step="name a file, a folder, or a dataset of the hub: OWNER/NAME or hf://datasets/OWNER/NAME/FILE",
        )
    names = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
    return [path / name for name in _train_tables(str(path), names)]


def _train_tables(where: str, names: Sequence[str]) -> list[str]:
    """Which of these files to train on: those of the split `train`, else the only table."""
    tables = sorted(name for name in names if kind_of(name) in SUFFIXES and Path(name).name not in OF_CARDS)
    of_split = [name for name in tables if Path(name).name.startswith("train") or "train" in Path(name).parts]
    if not of_split and len(tables) != 1:
        none = f"none that ends in {', '.join(SUFFIXES)}"
        raise MissingDataError(
            f"It is not clear which table of {where} to train on.",
            why=f"Tables there: {', '.join(tables[:6]) or none}.",
            next_step="name the file itself; of the hub: --data hf://datasets/OWNER/NAME/FILE",
        )
    return of_split or tables


# What a row has ----


def file_names(cell: Any) -> list[str]:
    """The files that a cell names, one or several; none for embedded images."""
    paths = (one.get("path") if isinstance(one, Mapping) and not one.get("bytes") else one for one in as_list(cell))
    return [path for path in paths if isinstance(path, str) and path and not ENCODED.match(path)]


def as_list(cell: Any) -> list[Any]:
    return cell if isinstance(cell, list) else [] if cell in (None, "") else [cell]


def options_of(row: Mapping[str, Any], column: str) -> tuple[str, ...]:
    """The options of a row without their letters: a list or a mapping of letters, also as JSON, or columns A, B, ..."""
    cell = row.get(column)
    if isinstance(cell, str):
        with suppress(json.JSONDecodeError):
            cell = json.loads(cell)
    if cell is None:
        cell = {letter: row.get(letter) for letter in LETTERS}
    if isinstance(cell, Mapping):
        cell = list(takewhile(lambda option: option not in (None, ""), map(cell.get, sorted(cell))))
    if cell and (not isinstance(cell, list) or any(isinstance(option, list | Mapping) for option in cell)):
        raise ValueError(f"its options {str(cell)[:40]!r} are no list of texts")
    texts = [str(option) for option in cell]
    if len(texts) > len(LETTERS):
        raise ValueError(f"it has {len(texts)} options, and their letters end at {LETTERS[-1]}")
    lettered = [re.fullmatch(rf"\(?{a}[.):]\s*(.+)", text, re.DOTALL) for a, text in zip(LETTERS, texts, strict=False)]
    bare = [match[1] for match in lettered if match is not None]
    return tuple(bare if len(bare) == len(texts) else texts)  # "E. coli" alone has no letter


def image_of(cell: Any, root: Path) -> bytes | Path:
    """An image as a row has it: embedded, or the path of its file, which lies below the folder of the table."""
    if isinstance(cell, Mapping):
        return cell["bytes"] if cell.get("bytes") is not None else own_file(root, cell["path"] or "")
    if not isinstance(cell, str):
        return cell
    return base64.b64decode(cell[begin.end() :]) if (begin := ENCODED.match(cell)) else own_file(root, cell)


def gold_answer(text: str) -> str:
    r"""The answer itself: `\boxed{7}`, `<answer> 7 </answer>` and `7` all give `7`."""
    if match := re.search(r"<answer>(.*?)</answer>", text, flags=re.DOTALL):
        text = match[1]
    text = text.strip().strip("$").strip()
    if match := re.fullmatch(r"\\boxed\{(.*)\}", text, flags=re.DOTALL):
        text = match[1].strip()
    return text


# Conversations --------------------------------------------------------------------------------------------------------


def question_of(cell: Any) -> str:
    """The text of a question, or of the user's first turn in a conversation, with marks where it shows something."""
    return str(cell or "") if turns_of(cell) is None else _text(_first(cell, "user"))


def answers_of(cell: Any) -> list[str]:
    """The texts of which any is right: those of a list, both words of yes and no, else one, which may be empty."""
    if isinstance(cell, bool):
        return list(YES_OR_NO[cell])
    if isinstance(cell, list) and cell and not isinstance(cell[0], Mapping):
        return [answers_of(one)[0] for one in cell]
    return [_answer_of(cell)]


def _answer_of(cell: Any) -> str:
    """The text of an answer, of verl's `reward_model`, or of the last turn of a conversation."""
    if isinstance(cell, Mapping):
        return str(cell.get("ground_truth") or "")
    turns = turns_of(cell)
    if turns is not None:
        return _text(turns[-1][1]) if turns and turns[-1][0] == "assistant" else ""
    return "" if cell is None or cell != cell else str(cell)  # NaN, as pandas writes what is not there


def system_of(cell: Any) -> str:
    return _text(_first(cell, "system"))


def media_of(asked: Any, cell: Any, kind: str) -> list[Any]:
    """The images of a row, in a column's cell or in its conversation itself, or the files of its videos."""
    within = _shown(_first(asked, "user"), kind)
    cells = as_list(cell) if kind == "image" else file_names(cell)
    if len(within) < len(media_within(asked, kind)):
        raise ValueError(f"its conversation shows an {kind} that is not in the user's first turn")
    named = file_names(cells)  # of embedded ones a conversation may name the files that they were
    if within and (cells or kind == "video") and (len(within) != len(cells) or named not in ([], within)):
        raise ValueError(f"the {kind}s of its conversation are not those of its column")
    return cells or within


def media_within(asked: Any, kind: str) -> list[Any]:
    """What all turns of a conversation have in themselves, where others mark a place alone."""
    return [one for _, content in turns_of(asked) or () for one in _shown(content, kind)]


def turns_of(cell: Any) -> list[tuple[str, Any]] | None:
    """Who says what in a conversation; None where this is none."""
    cell = _parsed(cell) if isinstance(cell, str) and cell.startswith("[{") else cell
    if not isinstance(cell, list) or not all(isinstance(turn, Mapping) for turn in cell):
        return None
    names = {"human": "user", "gpt": "assistant"}
    who = [str(turn.get("role") or turn.get("from")) for turn in cell]
    said = [turn.get("content", turn.get("value")) for turn in cell]
    return [(names.get(one, one), content) for one, content in zip(who, said, strict=True)]


@lru_cache(maxsize=64)  # a row is asked for its question, its answer and its images, and threads read many
def _parsed(cell: str) -> Any:
    with suppress(json.JSONDecodeError):
        return json.loads(cell)
    return cell


def _first(cell: Any, who: str) -> Any:
    return next((content for role, content in turns_of(cell) or () if role == who), None)


def _text(content: Any) -> str:
    if not isinstance(content, list):
        return str(content or "")
    return "".join(part.get("text") or f"<{_kind(part)}>" for part in content)


def _shown(content: Any, kind: str) -> list[Any]:
    fields = (f"{kind}_url", kind, "url", "path", "base64")  # OpenAI's, Qwen's, and those of transformers
    parts = [part for part in content if _kind(part) == kind] if isinstance(content, list) else []
    found = (next((part[name] for name in fields if part.get(name)), None) for part in parts)
    return [(one.get("url") or one) if isinstance(one, Mapping) else one for one in found if one]


def _kind(part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return str(kind).removeprefix("input_").removesuffix("_url")
