"""Responses to the prompts of a rollout by vLLM, in the processes that train or on a server of its own.

TRL brings the weights over and speaks with the server. What is done in its place:
1. A prompt goes in with one token for each image or video. TRL hands over the expanded ones, which vLLM would expand
   once more, without an error (TRL issue 6294).
2. After an update the outputs that vLLM keeps of the vision encoder are dropped, beside the keys and values that TRL
   drops: an image that comes again would be seen by the encoder of the weights before.
3. Every response has a seed of its own, made of what it answers, so a resumed run samples what the interrupted one
   would have.
4. Videos are handed over, with the moments of their frames.
5. The engine gets the processor of this run, with its limits of pixels, and its compute type; it is ended.
6. On a GPU it sleeps while the model trains.
7. Neighbouring processes may share an engine (tensor parallelism), whose weights are then divided among them. Each asks
   it everything that all of them ask and keeps the answers to its own prompts, with any numbers of prompts.

Shapes: P prompts, G responses each.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import patch_environment
from torch import Tensor
from trl.generation.vllm_generation import VLLMGeneration

from atrl_bench.engines.model_server import free_port
from atrl_bench.engines.processes import PATIENCE_IN_TRAINING, launched
from atrl_bench.errors import InvalidFileError
from atrl_bench.models.vllm_flags import CPU_CACHE_BYTES
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.rollout import Media, PromptBatch
from atrl_bench.training.rollout_engine import devices_of_an_engine, require_even_parts
from atrl_bench.training.sampler_check import num_media_tokens, require_proper_end, require_same_prompt
from atrl_bench.training.sharding import gathered
from atrl_bench.training.trainer import TrainerInputs

T = TypeVar("T")
PREFILL_TOKENS = 4096  # in one step of the engine, as in TRL: more of them would take memory from the training
WEIGHTS = ("*.safetensors", "model.safetensors.index.json", "config.json")
NEVER = -100.0  # the lowest bias that vLLM takes


class VLLMResponse(NamedTuple):
    """A response with the log-probabilities of its tokens, and its prompt, as vLLM read it."""

    token_ids: list[int]
    logprobs: list[float]
    prompt_ids: list[int]


class VLLMSampler(VLLMGeneration):
    """TRL's vLLM, with what it lacks for images, videos and runs that resume."""

    def __init__(self, inputs: TrainerInputs[RolloutRecipe], eos_ids: Sequence[int]) -> None:
        settings, sizes, config = inputs.profile.rollouts, inputs.recipe.sizes(inputs.profile), inputs.model.config
        accelerator = Accelerator(cpu=not torch.cuda.is_available())  # TRL asks it which processes there are
        device_gb = torch.cuda.mem_get_info()[1] / 1e9 if torch.cuda.is_available() else math.inf
        num_weights = sum(weight.numel() for weight in inputs.model.parameters())
        sharing = devices_of_an_engine(settings, num_weights, min(launched().gather([device_gb])))
        require_even_parts(sharing, accelerator.num_processes, config)
        self._dtype, self._num_media, self._run_seed = sizes.dtype, inputs.data.most_media, inputs.seed
        media_ids = [getattr(config, f"{kind}_token_id", None) for kind in ("image", "video")]
        self.media_ids = [token_id for token_id in media_ids if token_id is not None]
        self.eos_ids, self._step = list(eos_ids), -1
        sleeps = accelerator.device.type == "cuda" and settings.server is None  # while the model trains
        # The trainer scores the whole distribution, at its temperature: vLLM's own are those before any processing, or
        # after it. Both are meant where there is nothing to process.
        self.logprobs_mode = "raw_logprobs" if sizes.temperature == 1 else "processed_logprobs"
        if sharing > 1:
            self._group, _ = torch.distributed.new_subgroups(sharing, timeout=PATIENCE_IN_TRAINING, backend="gloo")
        super().__init__(
            inputs.model,
            accelerator,
            inputs.processor,
            mode="server" if settings.server else "colocate",
            server_base_url=settings.server,
            tensor_parallel_size=sharing,
            gpu_memory_utilization=settings.gpu_memory_fraction,
            enable_sleep_mode=sleeps,
            max_model_length=sizes.max_prompt_tokens + sizes.max_response_tokens,
            max_num_seqs=sizes.prompts_per_rollout * sizes.group_size * sharing // accelerator.num_processes,
            temperature=sizes.temperature,
            top_p=sizes.top_p,
            max_completion_length=sizes.max_response_tokens,
        )

    @property
    def is_shared(self) -> bool:
        """Whether several processes have one engine: all of them have to ask it, if for nothing, when one does."""
        return bool(self.tensor_parallel_size > 1)

    # Where it runs ----------------------------------------------------------------------------------------------------

    def _init_vllm(self) -> None:
        if self.mode == "server":
            super()._init_vllm()
            if self.accelerator.is_main_process:
                self._check_server(self.vllm_client.get_server_info()["model_config"]["logprobs_mode"])
            return
        from vllm import LLM, _custom_ops

        on_cpu: dict[str, Any] = {}
        if self.accelerator.device.type == "cpu":
            # oneDNN packs weights into a form that takes no new ones, and there are no seeds with chunks of a prompt.
            _custom_ops._supports_onednn = False
            on_cpu = {
                "enforce_eager": True,
                "enable_chunked_prefill": False,
                "kv_cache_memory_bytes": CPU_CACHE_BYTES,
            }
        self._folder = tempfile.TemporaryDirectory()
        self._fill(Path(self._folder.name))
        # Which process of how many this is, as vLLM reads it, and only while it does.
        place = {
            "rank": self.accelerator.process_index,
            "local_rank": self.accelerator.local_process_index,
            "world_size": self.accelerator.num_processes,
            "master_addr": os.environ.get("MASTER_ADDR") or "localhost",
            "master_port": os.environ.get("MASTER_PORT") or free_port(),  # TRL tries the same few, side by side too
        }
        with patch_environment(**place):
            self.llm = LLM(
                model=self._folder.name,
                generation_config="vllm",  # the model's own would add to what a request says
                dtype=self._dtype,
                tensor_parallel_size=self.tensor_parallel_size,
                max_model_len=self.max_model_length,
                max_num_seqs=self.max_num_seqs,
                max_num_batched_tokens=max(PREFILL_TOKENS, self.max_model_length),
                gpu_memory_utilization=self.gpu_memory_utilization,
                limit_mm_per_prompt=self._num_media,
                logprobs_mode=self.logprobs_mode,
                distributed_executor_backend="external_launcher",
                enable_sleep_mode=self.enable_sleep_mode,
                use_tqdm_on_load=False,
                seed=0,
                **on_cpu,
            )
        self.sleep()
        self.accelerator.wait_for_everyone()

    def _check_server(self, logprobs_mode: str) -> None:
        if logprobs_mode != self.logprobs_mode:
            raise InvalidFileError(
                f"The vLLM server at {self.server_base_url} tells {logprobs_mode}.",
                why=f"The trainer compares its own log-probabilities with {self.logprobs_mode}.",
                next_step=f"start the server with --logprobs-mode {self.logprobs_mode}",
            )

    def _fill(self, folder: Path) -> None:
        """Put the base model's weights and this run's processor, with its limits of pixels, where vLLM reads both."""
        base = Path(self.model.name_or_path)
        for pattern in WEIGHTS:
            for path in base.glob(pattern):
                (folder / path.name).symlink_to(path.resolve())
        self.processing_class.save_pretrained(folder)

    def close(self) -> None:
        """End the engine; what it left running would keep the process from ending."""
        if self.mode == "server":
            if self.accelerator.is_main_process:
                self.vllm_client.close_communicator()
            return
        import torch
        from vllm.distributed import destroy_distributed_environment, destroy_model_parallel

        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        destroy_model_parallel()
        self._folder.cleanup()
        if self.accelerator.num_processes == 1 and torch.distributed.is_initialized():  # the engine's own
            destroy_distributed_environment()

    # Weights ----------------------------------------------------------------------------------------------------------

    def load(self, step: int) -> None:
        """Give vLLM the weights of the trainer's optimiser step, unless it has them; it wakes up."""
        if step == self._step:
            return
        self.sync_weights()
        self._drop_seen_images()
        if self.is_shared:  # what NCCL still does for the training can block the engine: TRL issue 3671
            self.accelerator.wait_for_everyone()
        if self.enable_sleep_mode:
            self.llm.wake_up(tags=["kv_cache"])
        self._step = step

    def _iter_named_params(self) -> Iterator[tuple[str, Tensor]]:
        """Whole weights, one at a time: TRL gathers what accelerate has divided, and here FSDP2 alone did."""
        for name, weight in super()._iter_named_params():
            yield name, gathered(weight)

    def sleep(self) -> None:
        """Give its memory to the training: weights, keys and values are dropped."""
        if self.enable_sleep_mode:
            self.llm.sleep(level=2)
            self._step = -1

    def _drop_seen_images(self) -> None:
        if self.mode == "colocate":
            self.llm.llm_engine.reset_encoder_cache()
        elif self.accelerator.is_main_process:
            self.vllm_client._post(f"{self.vllm_client.base_url}/reset_encoder_cache")

    # Responses --------------------------------------------------------------------------------------------------------

    def sample(self, prompts: PromptBatch, group_size: int) -> list[VLLMResponse]:
        """P * G responses, group by group, each with the token that ended it."""
        if self.mode == "server":
            return self._sample_on_server(prompts, group_size)
        from vllm import SamplingParams

        options = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_completion_length,
            "logprobs": 0,  # of the drawn token alone
            "detokenize": False,
            **self._limits(),
        }
        asked = [
            (
                vllm_request(token_ids, media, self.media_ids),
                [response_seed(self._run_seed, key, repeat) for repeat in range(group_size)],
            )
            for key, token_ids, media in zip(prompts.keys_P, prompts.token_ids_P, prompts.media_P, strict=True)
        ]
        together, own = self._with_others(asked)
        requests = [request for request, seeds in together for _ in seeds]
        parameters = [SamplingParams(seed=seed, **options) for _, seeds in together for seed in seeds]
        outputs = self.llm.generate(requests, sampling_params=parameters, use_tqdm=False)
        return [_response(output) for output in outputs[own.start * group_size : own.stop * group_size]]

    def checked(
        self, prompts: PromptBatch, group_size: int, note: Callable[[str, float], None]
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Responses and their log-probabilities, none to another prompt and none that ends elsewhere."""
        responses = self.sample(prompts, group_size)
        for number, response in enumerate(responses):
            require_same_prompt(response.prompt_ids, prompts.token_ids_P[number // group_size], self.media_ids)
            require_proper_end(response.token_ids, self.eos_ids, self.max_completion_length)
            if prompts.num_counted is not None and number >= prompts.num_counted * group_size:
                continue
            note("sampling/media_tokens", num_media_tokens(response.prompt_ids, self.media_ids))
            note("sampling/ended", response.token_ids[-1] in self.eos_ids)
        return [response.token_ids for response in responses], [response.logprobs for response in responses]

    def _with_others(self, asked: list[T]) -> tuple[list[T], slice]:
        """What all processes of this engine ask, the same on each of them, and which part is this one's."""
        if not self.is_shared:
            return asked, slice(0, len(asked))
        of_each: list[Any] = [None] * self.tensor_parallel_size
        torch.distributed.all_gather_object(of_each, asked, group=self._group)
        start = sum(map(len, of_each[: torch.distributed.get_rank(self._group)]))
        return [one for of_process in of_each for one in of_process], slice(start, start + len(asked))

    def _sample_on_server(self, prompts: PromptBatch, group_size: int) -> list[VLLMResponse]:
        """What TRL's call of the server gives: one seed for all, from which vLLM counts on in each group."""
        self.generation_kwargs = {"seed": response_seed(self._run_seed, prompts.keys_P[0], 0), **self._limits()}
        prompt_ids = [ids for ids in prompts.token_ids_P for _ in range(group_size)]
        images = [media["image"] or None for media in prompts.media_P for _ in range(group_size)]
        read, responses, logprobs, _ = self.generate(prompt_ids, images, group_size)
        return [
            VLLMResponse(list(ids), [float("nan") if value is None else value for (value,) in values], list(prompt))
            for ids, values, prompt in zip(responses, logprobs, read, strict=True)
        ]

    def _limits(self) -> dict[str, Any]:
        """What ends a response, and what no response has: a placeholder without an image."""
        return {"stop_token_ids": self.eos_ids, "logit_bias": dict.fromkeys(self.media_ids, NEVER)}


def response_seed(run_seed: int, key: str, repeat: int) -> int:
    """The seed of a response, by what it answers and not by what was drawn before."""
    digest = hashlib.sha256(f"vllm:{run_seed}:{repeat}:{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def vllm_request(token_ids: Sequence[int], media: Media, media_ids: Sequence[int]) -> dict[str, Any]:
    """A prompt as vLLM takes it: one token for each image or video, and these beside it."""
    request: dict[str, Any] = {"prompt_token_ids": collapsed(token_ids, media_ids)}
    shown: dict[str, Any] = {}
    if media["image"]:
        shown["image"] = list(media["image"])
    if media["video"]:
        shown["video"] = [(video.frames, {**video.metadata, "do_sample_frames": False}) for video in media["video"]]
        # They are the frames that were read, and vLLM 0.30 keeps their moments from Qwen2.5-VL's processor.
        moments = [video.metadata for video in media["video"]]
        request["mm_processor_kwargs"] = {"do_sample_frames": False, "video_metadata": moments}
    return request | ({"multi_modal_data": shown} if shown else {})


def collapsed(token_ids: Sequence[int], media_ids: Sequence[int]) -> list[int]:
    """The tokens with one for each image or video in place of as many as it has."""
    kept: list[int] = []
    for token_id, run in groupby(token_ids):
        kept += [token_id] if token_id in media_ids else run
    return kept


def _response(output: Any) -> VLLMResponse:
    (answer,) = output.outputs
    logprobs = [values[token_id].logprob for token_id, values in zip(answer.token_ids, answer.logprobs, strict=True)]
    return VLLMResponse(list(answer.token_ids), logprobs, list(output.prompt_token_ids))
