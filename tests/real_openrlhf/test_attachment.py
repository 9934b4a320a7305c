"""The file that docs/other_trainers.md shows, in OpenRLHF's own policy worker: its pass and its buffer, on a CPU."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import ray
import torch
from eager_credit import BASE, eager_credit
from openrlhf.models import Actor
from openrlhf.trainer.ppo_utils import NaiveReplayBuffer
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray import ppo_actor
from openrlhf.utils.vlm_utils import process_prompt_with_images
from PIL import Image
from torch import nn
from transformers import AutoModelForImageTextToText, AutoProcessor

PAGE = Path(__file__).parents[2] / "docs" / "other_trainers.md"
RESPONSES = ["The digits are 3 and 4. 3 + 4 = 7. The answer is 7.", "The answer is 5."]
ADVANTAGES = [1.0, -0.5]
SEED = 3


class Engine(nn.Module):
    """In place of DeepSpeed's engine, which needs a GPU: it holds the model and calls it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments, **options):
        return self.module(*arguments, **options)


@pytest.fixture
def worker(monkeypatch):
    """A function from a rule to the page's worker, with the mini base where OpenRLHF would prepare it by DeepSpeed."""
    released = ppo_actor.PolicyModelActor.__ray_metadata__.modified_class
    monkeypatch.setattr(ppo_actor, "PolicyModelActor", ppo_actor.PolicyModelActor)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    strategy = SimpleNamespace(ring_attn_group=None, args=SimpleNamespace(train=SimpleNamespace(seed=SEED)))

    def prepare(self, strategy, pretrain):
        self.strategy, self.tokenizer = strategy, AutoProcessor.from_pretrained(pretrain).tokenizer
        self.actor = Actor(str(pretrain), attn_implementation="sdpa")
        # Its own weights are rounded to bfloat16, which the comparison would show.
        model = AutoModelForImageTextToText.from_pretrained(pretrain, dtype=torch.float32, attn_implementation="sdpa")
        self.actor.model = Engine(model)
        buffer = NaiveReplayBuffer.__new__(NaiveReplayBuffer)  # which asks for a GPU when it is made
        buffer.items, buffer.limit, buffer.cpu_offload = [], 0, True
        self.trainer = SimpleNamespace(replay_buffer=buffer)

    monkeypatch.setattr(released, "init_model_from_pretrained", prepare)

    def made(rule: str):
        block = re.search(
            r"^## OpenRLHF\n.*?```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        assert block is not None
        assert block[1].count('"atrl"') == 1
        names = {"__name__": "train_with_credit"}
        exec(compile(block[1].replace('"atrl"', f'"{rule}"'), PAGE.name, "exec"), names)
        assert isinstance(ppo_actor.PolicyModelActor, ray.actor.ActorClass), "what OpenRLHF starts on each GPU"
        policy = names["PolicyWithCredit"]
        assert ppo_actor.PolicyModelActor.__ray_metadata__.modified_class is policy
        own = policy.__new__(policy)
        own.init_model_from_pretrained(strategy, BASE)
        return own

    return made


def rollout() -> Experience:
    """Return two responses about images of two sizes, as OpenRLHF's sampler leaves them: padded on the right."""
    processor, rng, samples = AutoProcessor.from_pretrained(BASE), np.random.default_rng(0), []
    for text, advantage, shape in zip(RESPONSES, ADVANTAGES, [(56, 112), (112, 112)], strict=True):
        image = Image.fromarray(rng.integers(0, 255, (*shape, 3), dtype=np.uint8))
        question = [{"type": "image"}, {"type": "text", "text": "What is the sum of the digits?"}]
        chat = processor.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
        prompt, of_images, _ = process_prompt_with_images(processor, chat, [image])
        response = processor.tokenizer(text)["input_ids"] + [processor.tokenizer.eos_token_id]
        ids = torch.tensor([prompt + response])
        actions = torch.arange(1, ids.shape[1])[None] >= len(prompt)
        samples.append(
            Experience(
                sequences=ids,
                attention_mask=torch.ones_like(ids),
                action_mask=actions,
                advantages=advantage * actions.float(),
                mm_train_inputs=[of_images],
            )
        )
    return Experience.concat_experiences(samples, processor.tokenizer.pad_token_id)


def test_what_the_worker_puts_into_its_buffer_is_multiplied_by_the_credit(worker):
    own = worker("atrl")
    own.append(rollout())
    assert len(own.trainer.replay_buffer.items) == 2
    for item, advantage in zip(own.trainer.replay_buffer.items, ADVANTAGES, strict=True):
        (images,) = item.mm_train_inputs
        pixels, grid = images["pixel_values"], images["image_grid_thw"][0]
        is_response_S = torch.cat([torch.zeros(1, dtype=torch.bool), item.action_mask])
        expected_T = eager_credit(item.sequences, is_response_S, pixels, grid, SEED)
        of_response_T = item.advantages[item.action_mask]
        torch.testing.assert_close(of_response_T, advantage * expected_T, atol=1e-4, rtol=1e-4)
        assert of_response_T.std() > 0.01, "a credit of one everywhere would pass, too"
        assert bool((item.advantages[~item.action_mask] == 0).all())


def test_a_credit_of_one_is_plain_openrlhf(worker):
    own, plain = worker("uniform"), rollout()
    own.append(rollout())
    for item, advantages in zip(own.trainer.replay_buffer.items, plain.advantages, strict=True):
        assert torch.equal(item.advantages, advantages[: len(item.advantages)])
