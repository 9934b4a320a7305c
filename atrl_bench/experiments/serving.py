"""A model of this machine behind a server of its own, started with the flags that decide the number, and stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atrl_bench.engines.devices import Devices, memory_gb
from atrl_bench.engines.model_server import ModelServer, find_vllm, running_vllm
from atrl_bench.errors import EndpointError, InvalidFileError
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.experiments.cost import gpus_to_serve
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.chat_client import ChatClient, EndpointConfig
from atrl_bench.models.chat_template import require_tame
from atrl_bench.models.local import ModelRef, find_model, limit_pixels
from atrl_bench.models.prompt import Prompt
from atrl_bench.models.served import chat_messages
from atrl_bench.models.vllm_flags import vllm_flags
from atrl_bench.profiles import EvaluationSizes

NUM_PARALLEL = 64  # requests at a time: vLLM puts them into one batch
NUM_ATTEMPTS = 4  # a server of this machine that does not answer is down


def installed_engine() -> Engine:
    """The vLLM that answers where a command says `--serve`; raises `MissingDataError` where there is none."""
    return Engine("vllm", find_vllm().version)


@contextmanager
def serving(
    model: str | Path, run_dir: RunDir, devices: Devices, name: str, *, port: int | None = None
) -> Iterator[ModelServer]:
    """A healthy server of the model, which reads images as this process does, and logs to `NAME.vllm.log`."""
    ref, sizes = find_model(model, download=True), run_dir.profile.evaluation
    log = run_dir.root / "logs" / f"{file_name(name)}.vllm.log"
    flags = flags_for(ref, run_dir, devices)
    with running_vllm(find_vllm(), ref.folder, ref.name, flags, devices=devices, log=log, port=port) as server:
        server.wait_until_healthy()
        _require_same_reading(server, ref, sizes)
        yield server


def require_engine(run_dir: RunDir) -> None:
    """Raise an error unless the version of the folder's engine is installed here, if it has one."""
    if run_dir.engine is None:
        return
    vllm = find_vllm()
    if vllm.version != run_dir.engine.version:
        what = f"{run_dir.root} is answered by {run_dir.engine.text}, and vLLM {vllm.version} is installed."
        then = f"pip install vllm=={run_dir.engine.version}, or give --serve to answer anew"
        raise InvalidFileError(what, why="Answers of two versions are not mixed in one table.", next_step=then)


def flags_for(ref: ModelRef, run_dir: RunDir, devices: Devices) -> list[str]:
    profile = run_dir.profile.model_copy(update={"model": str(ref.folder)})
    of_a_copy = max(1, gpus_to_serve(profile, run_dir.rates.on(memory_gb(devices.gpus))))
    return vllm_flags(ref.folder, run_dir.profile.evaluation, num_gpus=len(devices.gpus), gpus_per_copy=of_a_copy)


def file_name(name: str) -> str:
    return re.sub(r"[^\w.=+-]+", "-", name)


def endpoint_of(server: ModelServer) -> EndpointConfig:
    return EndpointConfig(server.base_url, server.name, num_parallel=NUM_PARALLEL, num_attempts=NUM_ATTEMPTS)


def _require_same_reading(server: ModelServer, ref: ModelRef, sizes: EvaluationSizes) -> None:
    """Raise `EndpointError` where the server makes another number of tokens of words and images than this process."""
    from PIL import Image
    from transformers import AutoProcessor

    if not (ref.folder / "preprocessor_config.json").is_file() and not (ref.folder / "processor_config.json").is_file():
        return  # a judge, which sees no images
    side = int((2 * sizes.max_pixels) ** 0.5)  # above the bound on pixels, and one below: whether the bounds reached it
    images = [Image.new("RGB", (side, side), "white"), Image.new("RGB", (28, 28), "white")]
    content: list[dict[str, Any]] = [{"type": "image", "url": image} for image in images]
    prompt = Prompt("reading", [{"role": "user", "content": [*content, {"type": "text", "text": "Read."}]}], images)
    processor = AutoProcessor.from_pretrained(ref.folder, trust_remote_code=False)
    require_tame(processor, ref.folder)
    limit_pixels(processor, sizes.min_pixels, sizes.max_pixels, sizes.video_max_pixels)
    text = processor.apply_chat_template(prompt.messages, tokenize=False, add_generation_prompt=True)
    ours = len(processor(text=[text], images=images)["input_ids"][0])
    with ChatClient(endpoint_of(server)) as client:
        [completion] = client.retried(lambda: client.complete(chat_messages(prompt), temperature=0.0, max_tokens=1))
    if completion.num_prompt_tokens != ours:
        raise EndpointError(
            f"The server of {ref.name} reads a prompt of {ours} tokens as {completion.num_prompt_tokens}.",
            why="It has another chat template, or other bounds on the pixels of an image.",
            next_step="atrl-bench doctor, which says whether the versions of vLLM and transformers go together",
        )
