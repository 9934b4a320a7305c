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

# The repositories of each dataset by its folder in a data folder; that of the rows first.
REPOSITORIES_OF = {
    "chartqapro": ["ahmed-masry/ChartQAPro"],
    "emma": ["lmms-lab-encoder/EMMA"],
    "emma_mini": ["lmms-lab-encoder/EMMA-mini"],
    "infovqa": ["lmms-lab-encoder/DocVQA"],
    "mathverse": ["AI4Math/MathVerse"],
    "mathvision": ["MathLLMs/MathVision"],
    "mathvista": ["AI4Math/MathVista"],
    "mega_bench": ["TIGER-Lab/MEGA-Bench"],
    "mmmu": ["lmms-lab-encoder/MMMU"],
    "mmmu_pro": ["MMMU/MMMU_Pro"],
    "mmvu": ["lmms-eval/MMVU", "yale-nlp/MMVU"],
    "textvqa": ["lmms-lab-encoder/textvqa"],
    "video_mmmu": ["lmms-lab/VideoMMMU"],
    "vsi_bench": ["nyu-visionx/VSI-Bench"],
    "wemath": ["We-Math/We-Math"],
    "virl39k": ["TIGER-Lab/ViRL39K"],
    "geometry3k": ["hiyouga/geometry3k"],
    "mmk12": ["FanqingM/MMK12"],
    "dynamath": ["lscpku/DynaMath_Sample"],
    "logicvista": ["lscpku/LogicVista"],
    "mmstar": ["Lin-Chen/MMStar"],
    "hallusionbench": ["lmms-lab-encoder/HallusionBench"],
    "geoqa_8k": ["leonardPKU/GEOQA_R1V_Train_8K"],
    "video_r1": ["Video-R1/Video-R1-data"],
    "r1_vl": ["jingyiZ00/R1-VL-10K"],
}
SUBJECTS = ("Chemistry", "Coding", "Math", "Physics")  # of EMMA: a folder for each


@cache
def repositories(world: Path) -> Mapping[str, Files]:
    """Return the files of every repository, made from the datasets of a mini world."""
    shards = {
        "ahmed-masry/ChartQAPro": _shards(world, "chartqapro/test", "data/test"),
        "AI4Math/MathVerse": {
            "testmini.parquet": _table(world, "mathverse/testmini"),
            "testmini_text_only.parquet": _table(world, "mathverse/testmini_text_only"),
        },
        "MathLLMs/MathVision": {
            **_shards(world, "mathvision/test", "data/test"),
            **_shards(world, "mathvision/testmini", "data/testmini"),
        },
        "AI4Math/MathVista": {
            "data/testmini-00000-of-00001-725687bf7a18d64b.parquet": _table(world, "mathvista/testmini"),
            "data/test-00000-of-00002-6b81bd7f7e2065e6.parquet": b"another split",
        },
        "We-Math/We-Math": _shards(world, "wemath/testmini", "data/testmini"),
        "lmms-lab-encoder/EMMA": _by_subject(world, "emma/All/test"),
        "lmms-lab-encoder/EMMA-mini": _by_subject(world, "emma_mini/All/test"),
        "FanqingM/MMK12": {
            **_shards(world, "mmk12/test", "data/test"),
            "data/train-00000-of-00001.parquet": b"another split",
        },
        "lscpku/DynaMath_Sample": {
            **_shards(world, "dynamath/sample_all", "data/sample_all"),
            "data/sample_variant1-00000-of-00001.parquet": b"another split",
        },
        "lscpku/LogicVista": _shards(world, "logicvista/test", "data/test"),
        "Lin-Chen/MMStar": {"mmstar.parquet": _table(world, "mmstar/val"), "MMStar.tsv": b"not needed"},
        "lmms-lab-encoder/HallusionBench": {
            **_shards(world, "hallusionbench/image", "data/image"),
            "data/non_image-00000-of-00001.parquet": b"another split",
        },
        "lmms-lab-encoder/textvqa": {
            **_shards(world, "textvqa/validation", "data/validation", 3),
            "data/test-00000-of-00001.parquet": b"another split",
        },
        "lmms-lab-encoder/DocVQA": {
            **_shards(world, "infovqa/InfographicVQA/validation", "InfographicVQA/validation", 2),
            "DocVQA/validation-00000-of-00001.parquet": b"another subset",
        },
        "lmms-lab-encoder/MMMU": {
            **_shards(world, "mmmu/validation", "data/validation"),
            "data/dev-00000-of-00001.parquet": b"another split",
        },
        "MMMU/MMMU": _mmmu_by_subject(world),
        "MMMU/MMMU_Pro": {
            **_shards(world, "mmmu_pro/standard (10 options)/test", "standard (10 options)/test", 2),
            **_shards(world, "mmmu_pro/vision/test", "vision/test"),
            "standard (4 options)/test-00000-of-00001.parquet": b"another subset",
        },
        "TIGER-Lab/MEGA-Bench": {
            **_shards(world, "mega_bench/core/test", "core/test"),
            **_shards(world, "mega_bench/core_single_image/test", "core_single_image/test"),
            "open/test-00000-of-00001.parquet": b"another subset",
            "data.zip": _zip(world / "mega_bench", "data/**/*"),
        },
    }
    return shards | _of_videos(world) | _of_training(world)


def _of_videos(world: Path) -> dict[str, Files]:
    rows = _rows(world, "vsi_bench/full/test")
    halves = {"debiased": rows.slice(0, 10), "pruned": rows.slice(10)}
    tracks = {track: _shards(world, f"video_mmmu/{track}/test", f"{track}/test") for track in
              ("Perception", "Comprehension", "Adaptation")}  # fmt: skip
    scanners = ("arkitscenes", "scannet", "scannetpp")
    disciplines = ("Art", "Business", "Engineering", "Humanities", "Medicine", "Science")
    return {
        "nyu-visionx/VSI-Bench": {
            **{f"test_{name}.parquet": _written(table) for name, table in halves.items()},
            "test.jsonl": b"{}\n",
            **{f"{name}.zip": _zip(world / "vsi_bench", f"{name}/*.mp4") for name in scanners},
        },
        "lmms-lab/VideoMMMU": {
            **{name: content for track in tracks.values() for name, content in track.items()},
            "Comprehension_Engineering/test-00000-of-00001.parquet": b"a leftover of its authors",
            **{f"{name}.zip": _zip(world / "video_mmmu", f"{name}/*.mp4") for name in disciplines},
        },
        "lmms-eval/MMVU": {**_shards(world, "mmvu/validation", "data/validation"), "videos.zip": b"not needed"},
        "yale-nlp/MMVU": {
            "validation.json": b"[]",
            **_files(world / "mmvu", "videos/*/*.mp4"),
        },
    }  # fmt: skip


def _of_training(world: Path) -> dict[str, Files]:
    virl, images = _official_virl(_rows(world, "virl39k/train"))
    media = world / "video_r1"
    rows = {name: _rows(world, f"video_r1/{name}").to_pylist() for name in ("Video-R1-260k", "Video-R1-COT-165k")}
    return {
        "TIGER-Lab/ViRL39K": {"39Krelease.parquet": _written(virl), "images.zip": packed(images), "README.md": b"# "},
        "Kun-Xiang/ViRL39K": _shards(world, "virl39k/train", "data/train", 2),
        "hiyouga/geometry3k": {
            **_shards(world, "geometry3k/train", "data/train"),
            **_shards(world, "geometry3k/test", "data/test"),
        },
        "leonardPKU/GEOQA_R1V_Train_8K": _shards(world, "geoqa_8k/train", "data/train"),
        "Video-R1/Video-R1-data": {
            **{f"{name}.json": json.dumps(content).encode() for name, content in rows.items()},
            # What a row calls ./videos/a.mp4 is a.mp4 in an archive in the folder videos.
            "videos/videos_part1.zip": _zip(media / "videos", "*.mp4"),
            "images/images_part1.zip": _zip(media / "images", "*"),
        },
        "jingyiZ00/R1-VL-10K": {
            "R1-VL-10K.json": json.dumps(_rows(world, "r1_vl/train").to_pylist()).encode(),
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


def _table(world: Path, stem: str) -> bytes:
    return (world / f"{stem}-00000-of-00001.parquet").read_bytes()


def _written(table: pyarrow.Table) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _shards(world: Path, stem: str, name: str, count: int = 1) -> Files:
    """Return a table in so many files: the mini world's own file where it is one."""
    if count == 1:
        return {f"{name}-00000-of-00001.parquet": _table(world, stem)}
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


def packed(files: Files) -> bytes:
    """Return a zip archive of these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def tarred(files: Files) -> bytes:
    """Return a gzipped tar archive of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
