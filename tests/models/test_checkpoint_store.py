"""A finished checkpoint goes to a folder or an object store and comes back the same, or is refused with the reason."""

import json
import os
from pathlib import Path

import fsspec
import pytest
from fsspec.registry import known_implementations

from atrl_bench.errors import EndpointError, MissingDataError
from atrl_bench.models.checkpoint_store import CheckpointStore
from atrl_bench.models.local import DONE, model_ref

KEY = "0123456789abcdef"


def checkpoint(folder: Path, weights: bytes = b"weights") -> str:
    """Write what a training leaves, and return its digest."""
    (folder / "adapter").mkdir(parents=True)
    (folder / "resume" / "checkpoint-2").mkdir(parents=True)
    (folder / "resume" / "checkpoint-2" / "optimizer.pt").write_bytes(b"large")
    (folder / "lock").touch()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"small")
    digest = model_ref(folder).digest
    (folder / DONE).write_text(json.dumps({"digest": digest, "seconds": 1.0, "summary": {}}))
    return digest


@pytest.fixture(scope="module")
def s3_bucket():
    """The URL of a bucket of a real S3 server on this machine, which boto3 and s3fs reach as they would Amazon's."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    before = dict(os.environ)
    os.environ |= {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ |= {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret"}
    import boto3

    boto3.client("s3").create_bucket(Bucket="runs")
    yield "s3://runs/paper"
    os.environ.clear()
    os.environ.update(before)
    server.stop()


@pytest.fixture(params=["folder", "file", "memory", "s3"])
def url(request, tmp_path):
    """The URL of an empty store of each kind."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3_bucket')}/{tmp_path.name}"
    kinds = {"folder": f"{tmp_path}/kept", "file": f"file://{tmp_path}/kept", "memory": f"memory://{tmp_path.name}"}
    return kinds[request.param]


def system(url: str):
    return fsspec.url_to_fs(url, **({} if url.startswith("s3") else {"auto_mkdir": True}))


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_checkpoint_comes_back_with_the_bytes_that_were_sent(url, tmp_path):
    sent, back = tmp_path / "one" / KEY, tmp_path / "two" / KEY
    digest = checkpoint(sent)
    store = CheckpointStore.by(url)
    store.require_open()
    assert store.digest_of(KEY) is None
    assert not store.fetch(back)
    assert not back.exists()
    store.put(sent, digest)
    assert store.digest_of(KEY) == digest
    assert store.fetch(back)
    assert model_ref(back).digest == digest
    files = ["adapter/adapter_model.safetensors", "config.json", "done.json", "metrics.jsonl", "model.safetensors"]
    assert names(back) == files, "neither what resuming needs nor a lock"
    assert all((back / name).read_bytes() == (sent / name).read_bytes() for name in files)


def test_what_was_sent_halfway_is_not_there_and_is_sent_again(url, tmp_path):
    sent = tmp_path / KEY
    digest = checkpoint(sent)
    store, (files, root) = CheckpointStore.by(url), system(url)
    files.pipe_file(f"{root}/{KEY}/model.safetensors", b"wei")  # then the sender died
    assert not store.fetch(tmp_path / "two" / KEY)
    files.pipe_file(f"{root}/{KEY}/done.json", b'{"digest": "01')
    assert store.digest_of(KEY) is None
    store.put(sent, digest)
    assert store.fetch(tmp_path / "two" / KEY)


def test_another_checkpoint_under_the_same_key_is_not_overwritten(url, tmp_path):
    one, two = tmp_path / "one" / KEY, tmp_path / "two" / KEY
    digest, other = checkpoint(one), checkpoint(two, b"others")
    store = CheckpointStore.by(url)
    store.put(one, digest)
    store.put(one, digest)  # the same one again is fine
    with pytest.raises(MissingDataError, match="is not the one of this run folder") as caught:
        store.put(two, other)
    assert caught.value.why == f"Its digest is {digest}, that of the training here {other}."
    assert store.digest_of(KEY) == digest


def test_a_damaged_checkpoint_is_refused_and_leaves_what_is_here_alone(url, tmp_path):
    sent, here = tmp_path / "one" / KEY, tmp_path / "two" / KEY
    store, digest = CheckpointStore.by(url), checkpoint(sent)
    store.put(sent, digest)
    files, root = system(url)
    files.pipe_file(f"{root}/{KEY}/model.safetensors", b"weights!")
    (here / "resume").mkdir(parents=True)
    (here / "resume" / "state").touch()
    with pytest.raises(MissingDataError, match="is damaged") as caught:
        store.fetch(here)
    assert digest in caught.value.why
    assert names(here) == ["resume/state"]


def test_a_name_that_leads_out_of_the_folder_is_not_written(s3_bucket, tmp_path):
    import boto3

    sent, url = tmp_path / KEY, f"{s3_bucket}/outside"
    CheckpointStore(url).put(sent, checkpoint(sent))
    boto3.client("s3").put_object(Bucket="runs", Key=f"paper/outside/{KEY}/../../escaped", Body=b"x")
    with pytest.raises(EndpointError, match="Checkpoints cannot be kept in") as caught:
        CheckpointStore(url).fetch(tmp_path / "deep" / "two" / KEY)
    assert "outside the checkpoint's folder" in caught.value.why
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(
    ("variables", "url", "why"),
    [
        ({}, "s3://nobody-made-this", "does not exist"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "s3://runs", "127.0.0.1:9"),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "s3://runs", "redentials"),
    ],
    ids=["no such bucket", "unreachable", "no credentials"],
)
def test_a_store_that_cannot_be_used_says_why_before_anything_is_trained(s3_bucket, monkeypatch, variables, url, why):
    import s3fs

    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    for name, value in variables.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(EndpointError, match=f"cannot be kept in {url}") as caught:
            CheckpointStore.by(url).require_open()
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
    assert why in caught.value.why


def test_a_kind_of_store_whose_package_is_not_installed_says_so(monkeypatch):
    monkeypatch.setitem(known_implementations, "gs", {"class": "no_such.One", "err": "Install gcsfs"})
    with pytest.raises(EndpointError, match="Install gcsfs"):
        CheckpointStore.by("gs://bucket").require_open()


def test_a_folder_is_named_by_its_whole_path_and_an_unknown_kind_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CheckpointStore.by("kept") == CheckpointStore(f"{tmp_path}/kept")
    assert CheckpointStore.by("none") is None
    with pytest.raises(EndpointError, match="Protocol not known: s4"):
        CheckpointStore.by("s4://bucket").require_open()
