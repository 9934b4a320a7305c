"""The benchmarks and training sets of the mini world, laid out as the real ones lie on the hub.

`repositories(world)` gives the files of each repository by their names in it, `local_dir(...)` writes what
`hf download --repo-type dataset ID --local-dir FOLDER` would, for every repository that a dataset needs.
"""

import io
import json
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pyarrow
import pyarrow.parquet

Files = dict[str, bytes]

SUBJECTS = ("Chemistry", "Coding", "Math", "Physics")  # of EMMA: a folder for each


# Each table of a repository: where the mini world has it, its name there, and in how many files it is.
TABLES = (
    ("ahmed-masry/ChartQAPro", "chartqapro/test", "data/test", 1),
    ("AI4Math/MathVerse", "mathverse/testmini", "testmini.parquet", 1),
    ("AI4Math/MathVerse", "mathverse/testmini_text_only", "testmini_text_only.parquet", 1),
    ("AI4Math/MathVista", "mathvista/testmini", "data/testmini-00000-of-00001-725687bf7a18d64b.parquet", 1),
    ("MathLLMs/MathVision", "mathvision/test", "data/test", 1),
    ("MathLLMs/MathVision", "mathvision/testmini", "data/testmini", 1),
    ("We-Math/We-Math", "wemath/testmini", "data/testmini", 1),
    ("FanqingM/MMK12", "mmk12/test", "data/test", 1),
    ("lscpku/DynaMath_Sample", "dynamath/sample_all", "data/sample_all", 1),
    ("lscpku/LogicVista", "logicvista/test", "data/test", 1),
    ("Lin-Chen/MMStar", "mmstar/val", "mmstar.parquet", 1),
    ("lmms-lab-encoder/HallusionBench", "hallusionbench/image", "data/image", 1),
    ("lmms-lab-encoder/textvqa", "textvqa/validation", "data/validation", 3),
    ("lmms-lab-encoder/DocVQA", "infovqa/InfographicVQA/validation", "InfographicVQA/validation", 2),
    ("lmms-lab-encoder/MMMU", "mmmu/validation", "data/validation", 1),
    ("MMMU/MMMU_Pro", "mmmu_pro/standard (10 options)/test", "standard (10 options)/test", 2),
    ("MMMU/MMMU_Pro", "mmmu_pro/vision/test", "vision/test", 1),
    ("TIGER-Lab/MEGA-Bench", "mega_bench/core/test", "core/test", 1),
    ("TIGER-Lab/MEGA-Bench", "mega_bench/core_single_image/test", "core_single_image/test", 1),
    *(
        ("lmms-lab/VideoMMMU", f"video_mmmu/{track}/test", f"{track}/test", 1)
        for track in ("Perception", "Comprehension", "Adaptation")
    ),
    ("lmms-eval/MMVU", "mmvu/validation", "data/validation", 1),
    ("Kun-Xiang/ViRL39K", "virl39k/train", "data/train", 2),
    ("hiyouga/geometry3k", "geometry3k/train", "data/train", 1),
    ("hiyouga/geometry3k", "geometry3k/test", "data/test", 1),
    ("leonardPKU/GEOQA_R1V_Train_8K", "geoqa_8k/train", "data/train", 1),
)
# The repositories of each dataset by its folder in a data folder; that of the rows first.
REPOSITORIES_OF = {stem.partition("/")[0]: [hub_id] for hub_id, stem, *_ in TABLES} | {
    "emma": ["lmms-lab-encoder/EMMA"],
    "emma_mini": ["lmms-lab-encoder/EMMA-mini"],
    "mmvu": ["lmms-eval/MMVU", "yale-nlp/MMVU"],
    "vsi_bench": ["nyu-visionx/VSI-Bench"],
    "virl39k": ["TIGER-Lab/ViRL39K"],
    "video_r1": ["Video-R1/Video-R1-data"],
    "r1_vl": ["jingyiZ00/R1-VL-10K"],
}
# What lies beside them and is of another split or subset, a leftover of the authors, or not needed.
BESIDE = {
    "AI4Math/MathVista": "data/test-00000-of-00002-6b81bd7f7e2065e6.parquet",
    "FanqingM/MMK12": "data/train-00000-of-00001.parquet",
    "lscpku/DynaMath_Sample": "data/sample_variant1-00000-of-00001.parquet",
    "Lin-Chen/MMStar": "MMStar.tsv",
    "lmms-lab-encoder/HallusionBench": "data/non_image-00000-of-00001.parquet",
    "lmms-lab-encoder/textvqa": "data/test-00000-of-00001.parquet",
    "lmms-lab-encoder/DocVQA": "DocVQA/validation-00000-of-00001.parquet",
    "lmms-lab-encoder/MMMU": "data/dev-00000-of-00001.parquet",
    "MMMU/MMMU_Pro": "standard (4 options)/test-00000-of-00001.parquet",
    "TIGER-Lab/MEGA-Bench": "open/test-00000-of-00001.parquet",
    "lmms-lab/VideoMMMU": "Comprehension_Engineering/test-00000-of-00001.parquet",
    "lmms-eval/MMVU": "videos.zip",
}
DISCIPLINES = ("Art", "Business", "Engineering", "Humanities", "Medicine", "Science")  # of VideoMMMU


@cache
def repositories(world: Path) -> Mapping[str, Files]:
    """Return the files of every repository, made from the datasets of a mini world."""
    files: dict[str, Files] = defaultdict(dict, _of_other_forms(world))
    for hub_id, stem, name, count in TABLES:
        files[hub_id] |= _shards(world, stem, name, count)
    for hub_id, name in BESIDE.items():
        files[hub_id][name] = b"not to be read"
    return dict(files)


def _of_other_forms(world: Path) -> dict[str, Files]:
    """Return what is no table as the mini world has it."""
    scenes = _rows(world, "vsi_bench/full/test")
    virl, images = _official_virl(_rows(world, "virl39k/train"))
    media = world / "video_r1"
    video_r1 = {name: _json(world, f"video_r1/{name}") for name in ("Video-R1-260k", "Video-R1-COT-165k")}
    return {
        "lmms-lab-encoder/EMMA": _by_subject(world, "emma/All/test"),
        "lmms-lab-encoder/EMMA-mini": _by_subject(world, "emma_mini/All/test"),
        "MMMU/MMMU": _mmmu_by_subject(world),
        "TIGER-Lab/MEGA-Bench": {"data.zip": _zip(world / "mega_bench", "data/**/*")},
        "nyu-visionx/VSI-Bench": {
            "test_debiased.parquet": _written(scenes.slice(0, 10)),
            "test_pruned.parquet": _written(scenes.slice(10)),
            "test.jsonl": b"{}\n",
            **_zips(world / "vsi_bench", "arkitscenes", "scannet", "scannetpp"),
        },
        "lmms-lab/VideoMMMU": _zips(world / "video_mmmu", *DISCIPLINES),
        "yale-nlp/MMVU": {"validation.json": b"[]", **_files(world / "mmvu", "videos/*/*.mp4")},
        "TIGER-Lab/ViRL39K": {"39Krelease.parquet": _written(virl), "images.zip": packed(images), "README.md": b"# "},
        "Video-R1/Video-R1-data": {
            **{f"{name}.json": content for name, content in video_r1.items()},
            # What a row calls ./videos/a.mp4 is a.mp4 in an archive in the folder videos.
            "videos/videos_part1.zip": _zip(media / "videos", "*.mp4"),
            "images/images_part1.zip": _zip(media / "images", "*"),
        },
        "jingyiZ00/R1-VL-10K": {
            "R1-VL-10K.json": _json(world, "r1_vl/train"),
            "images.zip": _zip(world / "r1_vl", "images/*"),
        },
    }


def _official_virl(copy: pyarrow.Table) -> tuple[pyarrow.Table, Files]:
    """Return ViRL39K as its authors have it: paths in a column `image`, and the files that they lead to."""
    rows, images = [], {}
    for row in copy.to_pylist():
        names = [f"images/{row['qid']}-{number}.png" for number in range(len(row["images"]))]
        images |= {name: image["bytes"] for name, image in zip(names, row["images"], strict=True)}
        kept = {name: row[name] for name in ("answer", "category", "qid")}
        rows.append({**kept, "question": row["problem"], "image": names})
    return pyarrow.Table.from_pylist(rows), images


def geoqa_sources(world: Path) -> tuple[bytes, Files]:
    """Return the two sources of the GeoQA test: R1-V's questions, and the repository with the images of Geo170K."""
    rows = _rows(world, "geoqa/test").to_pylist()
    names = [f"images/test/{number}.png" for number in range(len(rows))]
    lines = [
        json.dumps(
            {"image_path": f"./Geo170K/{name}", "question": row["question"], "ground_truth": row["ground_truth"]}
        )
        for name, row in zip(names, rows, strict=True)
    ]
    images = {name: row["image"]["bytes"] for name, row in zip(names, rows, strict=True)}
    return "\n".join(lines).encode(), {"images.zip": packed(images), "qa_tuning.json": b"[]"}


def local_dir(world: Path, folder: str, data_dir: Path, hub_ids: Iterable[str] = ()) -> Path:
    """Return `data_dir` with a dataset in it as `hf download --local-dir` writes the repositories that it needs."""
    for hub_id in hub_ids or REPOSITORIES_OF[folder]:
        for name, content in repositories(world)[hub_id].items():
            (data_dir / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (data_dir / folder / name).write_bytes(content)
    notes = data_dir / folder / ".cache" / "huggingface" / "download"  # what the client notes there for itself
    notes.mkdir(parents=True, exist_ok=True)
    (notes / "test.parquet").write_bytes(b"no table")
    return data_dir


def unpack_by_hand(folder: Path) -> None:
    """Unpack each archive where it lies, as a person would."""
    for path in folder.rglob("*.zip"):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                archive.extractall(path.parent)


def _rows(world: Path, stem: str) -> pyarrow.Table:
    return pyarrow.parquet.read_table(world / f"{stem}-00000-of-00001.parquet")


def _json(world: Path, stem: str) -> bytes:
    return json.dumps(_rows(world, stem).to_pylist()).encode()


def _written(table: pyarrow.Table) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _shards(world: Path, stem: str, name: str, count: int = 1) -> Files:
    """Return a table in so many files: the mini world's own file where it is one."""
    if count == 1:
        file = name if name.endswith(".parquet") else f"{name}-00000-of-00001.parquet"
        return {file: (world / f"{stem}-00000-of-00001.parquet").read_bytes()}
    table = _rows(world, stem)
    size = -(-len(table) // count)
    return {
        f"{name}-{number:05d}-of-{count:05d}.parquet": _written(table.slice(number * size, size))
        for number in range(count)
    }


def _by_subject(world: Path, stem: str) -> Files:
    """Return EMMA's rows with a folder for each subject."""
    table = _rows(world, stem)
    size = -(-len(table) // len(SUBJECTS))
    return {
        f"{subject}/test-00000-of-00001.parquet": _written(table.slice(number * size, size))
        for number, subject in enumerate(SUBJECTS)
    }


def _mmmu_by_subject(world: Path) -> Files:
    """Return MMMU's rows as its authors have them: a folder for each subject, which only the ids tell."""
    table, rows_of = _rows(world, "mmmu/validation"), defaultdict(list)
    for number, name in enumerate(table["id"].to_pylist()):
        rows_of["_".join(name.split("_")[1:-1])].append(number)
    files = {"README.md": b"# MMMU"}
    for subject, rows in rows_of.items():
        files[f"{subject}/validation-00000-of-00001.parquet"] = _written(table.take(rows))
        files[f"{subject}/dev-00000-of-00001.parquet"] = b"another split"
    return files


def _files(root: Path, pattern: str) -> Files:
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.glob(pattern)) if path.is_file()
    }


def _zip(root: Path, pattern: str) -> bytes:
    return packed(_files(root, pattern))


def _zips(root: Path, *folders: str) -> Files:
    return {f"{name}.zip": _zip(root, f"{name}/*.mp4") for name in folders}


def packed(files: Files, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive of these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


def tarred(files: Files, mode: str = "w:gz") -> bytes:
    """Return a tar archive of these files, gzipped as the mode says."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
