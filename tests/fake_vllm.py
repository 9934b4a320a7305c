"""A vLLM made of transformers, for tests without one: its modules, its requests and its answers, and its caches.

It does what the real one does with a prompt (one placeholder becomes as many tokens as its image has), with seeds, with
the vision encoder's outputs (kept by image until they are dropped), and with weights (a copy of its own).
"""

import importlib
import os
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import torch
from tiny_vlms import token_types

from atrl_bench.models.decoding import Draw, sample
from atrl_bench.models.prompt import Sampling
from atrl_bench.training.group_sampling import prompt_inputs


class LLM:
    """An engine; `log` has what was done to it, in order."""

    def __init__(self, model, **options):
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self.options, self.log, self.shift = options, [], 0.0
        self.port = os.environ["MASTER_PORT"]
        self.model = AutoModelForImageTextToText.from_pretrained(model, dtype=getattr(torch, options["dtype"])).eval()
        self.processor = AutoProcessor.from_pretrained(model)
        self.seen = {}
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load))
        worker = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        core = SimpleNamespace(shutdown=lambda: self.log.append("end"))
        self.llm_engine = SimpleNamespace(
            model_executor=worker, reset_encoder_cache=self._forget_images, engine_core=core
        )

    def _load(self, weights):
        self.model.load_state_dict(dict(weights), strict=False)
        if self.log[-1:] != ["weights"]:
            self.log.append("weights")

    def _forget_images(self):
        self.seen.clear()
        self.log.append("forget images")

    def sleep(self, level):
        self.log.append(f"sleep {level}")

    def wake_up(self, tags):
        self.log.append(f"wake {tags[0]}")

    def reset_prefix_cache(self):
        self.log.append("forget prefixes")

    def generate(self, requests, sampling_params, use_tqdm):
        self.log.append("generate")
        return [self._answer(request, each) for request, each in zip(requests, sampling_params, strict=True)]

    def _answer(self, request, parameters):
        images = request["multi_modal_data"]["image"]
        pixels = self.processor.image_processor(images=images, return_tensors="pt")
        pad, merged = self.model.config.image_token_id, self.processor.image_processor.merge_size**2
        counts = iter((pixels["image_grid_thw"].prod(1) // merged).tolist())
        ids, before = [], None
        for token in request["prompt_token_ids"]:  # the first of a run is an image, what follows it stays
            ids += [token] * (next(counts) if token == pad != before else 1)
            before = token
        with self._remembering(images):
            return self._sampled(ids, pixels, parameters)

    @contextmanager
    def _remembering(self, images):
        """Let an image that was seen look as it did then, until the encoder's outputs are dropped."""
        key, inner = images[0].tobytes(), self.model.model
        encode = inner.get_image_features

        def remembered(*arguments, **options):
            if key not in self.seen:
                self.seen[key] = encode(*arguments, **options)
            return self.seen[key]

        inner.get_image_features = remembered
        try:
            yield
        finally:
            del inner.get_image_features

    def _sampled(self, ids, pixels, parameters):
        types = token_types(torch.tensor([ids]), self.model.config.image_token_id, None).tolist()
        if sum(types[0]) != pixels["image_grid_thw"].prod(1).sum() // self.processor.image_processor.merge_size**2:
            # The real one answers about what it has made of the prompt; transformers refuses it.
            answer = SimpleNamespace(token_ids=[0], logprobs=[{0: SimpleNamespace(logprob=0.0)}])
            return SimpleNamespace(prompt_token_ids=ids, outputs=[answer])
        inputs = prompt_inputs([ids], {"mm_token_type_ids": types}, 0, "cpu") | dict(pixels)
        sampling = Sampling(parameters.max_tokens, parameters.temperature, parameters.top_p, 0)
        (drawn,) = sample(self.model, inputs, [Draw(0, str(parameters.seed), 0)], parameters.stop_token_ids, sampling)
        token_ids = [*drawn.token_ids, *([] if drawn.end is None else [drawn.end])]
        whole = torch.tensor([ids + token_ids])
        fields = {"mm_token_type_ids": torch.tensor([types[0] + [0] * len(token_ids)])}
        with torch.no_grad():
            logits = self.model(input_ids=whole, attention_mask=torch.ones_like(whole), **fields, **pixels).logits
        logprobs_TV = (logits[0, len(ids) - 1 : -1] / parameters.temperature).log_softmax(-1)
        values = logprobs_TV.gather(1, torch.tensor(token_ids)[:, None])[:, 0] + self.shift
        logprobs = [{t: SimpleNamespace(logprob=v)} for t, v in zip(token_ids, values.tolist(), strict=True)]
        return SimpleNamespace(prompt_token_ids=ids, outputs=[SimpleNamespace(token_ids=token_ids, logprobs=logprobs)])


def install(monkeypatch):
    """Make this the vLLM of the process."""
    importlib.import_module("atrl_bench.training.vllm_sampler")  # with it TRL, which looks for a package of this name
    vllm = ModuleType("vllm")
    vllm.LLM, vllm.SamplingParams = LLM, SimpleNamespace
    vllm._custom_ops = SimpleNamespace()
    distributed = ModuleType("vllm.distributed")
    distributed.destroy_model_parallel = distributed.destroy_distributed_environment = lambda: None
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.distributed", distributed)
    monkeypatch.setattr("atrl_bench.training.rollout_engine.installed_vllm", lambda: "0.30.0")
