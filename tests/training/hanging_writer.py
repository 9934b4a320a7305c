"""One of two processes that write a checkpoint together, of which the second hangs as it writes."""

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch.distributed.checkpoint import FileSystemWriter

from atrl_bench.errors import AtrlBenchError
from atrl_bench.training import checkpoints


def process(folder):
    os.environ["ACCELERATE_USE_FSDP"] = "true"
    checkpoints.PATIENCE_IN_TRAINING, checkpoints.GRACE = timedelta(seconds=5), timedelta(seconds=1)
    if os.environ["RANK"] == "1":
        FileSystemWriter.write_data = lambda *_: time.sleep(600)
    shared = checkpoints.Checkpoints(Path(folder) / "resume")
    shared.begin(4, {"weight": torch.zeros(8)}, None, lambda _: None)
    try:
        shared.finish()
    except AtrlBenchError as error:
        (Path(folder) / "said.txt").write_text(error.what)
        raise
