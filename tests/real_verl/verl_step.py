"""The same step by verl's FSDP2 engine, on a CPU with gloo."""

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict
from torch.distributed.tensor import DTensor
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl
from trl_step import BASE, TrlStep
from verl.models.transformers import monkey_patch, qwen2_vl
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils
from verl.workers.config import FSDPActorConfig, FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import ppo_loss

import atrl_bench.engines.verl.plugin  # noqa: F401  (registers the engine)
from atrl_bench.engines.verl.engine import REQUEST
from atrl_bench.engines.verl.settings import VerlCredit

FLOAT32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


def keep_what_verl_patches(monkeypatch):
    """Put the classes of transformers, which verl changes for the whole process, back after the test."""
    for module, prefix in ((modeling_qwen2_5_vl, "Qwen2_5_VL"), (modeling_qwen2_vl, "Qwen2VL")):
        for suffix in ("Model", "ForConditionalGeneration", "Attention"):
            kind = getattr(module, prefix + suffix)
            monkeypatch.setattr(kind, "forward", kind.forward)
    monkeypatch.setattr(qwen2_vl, "_custom_flash_attention_forward", qwen2_vl._custom_flash_attention_forward)
    # Where it finds TRL it wants a class of old ones; here is the one that it is compared with.
    monkeypatch.setattr(monkey_patch, "is_trl_available", lambda: False)


def stand_in_for_flash_attention(monkeypatch):
    """Give verl an attention over packed sequences that runs on a CPU; the kernel that it asks for does not."""

    def varlen(q, k, v, cu_seqlens_q, causal, softmax_scale=None, **_):
        parts = [tensor.tensor_split(cu_seqlens_q[1:-1].tolist()) for tensor in (q, k, v)]
        attended = [
            torch.nn.functional.scaled_dot_product_attention(
                *(one.transpose(0, 1)[None] for one in sequence), is_causal=causal, scale=softmax_scale
            )[0].transpose(0, 1)
            for sequence in zip(*parts, strict=True)
        ]
        return torch.cat(attended)

    monkeypatch.setattr(qwen2_vl, "flash_attn_varlen_func", varlen, raising=False)
    monkeypatch.setattr(qwen2_vl, "fa_peft_integration_check", lambda *tensors, **_: tensors)  # to bfloat16
    for name in ("supports_window_size", "supports_deterministic", "use_top_left_mask"):
        monkeypatch.setattr(qwen2_vl, f"_flash_{name}", False, raising=False)


def engine(*, use_remove_padding: bool):
    """Return verl's engine with the mini base, as verl makes it."""
    made = EngineRegistry.new(
        model_type="language_model",
        backend="fsdp2",
        model_config=HFModelConfig(
            path=str(BASE),
            override_config={"attn_implementation": "sdpa"},
            use_remove_padding=use_remove_padding,
            enable_gradient_checkpointing=False,
        ),
        engine_config=FSDPEngineConfig(strategy="fsdp2", mixed_precision=FLOAT32, use_torch_compile=False),
        optimizer_config=FSDPOptimizerConfig(lr=1e-6, total_training_steps=10),
        checkpoint_config=CheckpointConfig(),
    )
    made.initialize()
    return made


def batch_of(step: TrlStep, *, use_remove_padding: bool, micro_batch: int = 2) -> TensorDict:
    """Return TRL's batch as verl's agent loop leaves it, without padding."""
    processor = HFModelConfig(path=str(BASE), override_config={"attn_implementation": "sdpa"}).processor
    prompts = [ids[:length] for ids, length in zip(step.ids, step.prompt_lengths, strict=True)]
    responses = [ids[length:] for ids, length in zip(step.ids, step.prompt_lengths, strict=True)]
    positions = [
        torch.cat([torch.arange(len(ids))[None], qwen2_vl.get_rope_index(processor, ids, grid)])
        for ids, grid in zip(step.ids, step.grids, strict=True)
    ]
    masks = [torch.ones_like(response) for response in responses]
    fields = {
        "input_ids": step.ids,
        "position_ids": positions,
        "prompts": prompts,
        "responses": responses,
        "response_mask": masks,
        "loss_mask": masks,
    }
    batch = TensorDict({name: _nested(values) for name, values in fields.items()}, batch_size=len(step.ids))
    batch["multi_modal_inputs"] = NonTensorStack(
        *(
            NonTensorData({"pixel_values": pixels, "image_grid_thw": grid})
            for pixels, grid in zip(step.pixel_values, step.grids, strict=True)
        )
    )
    tensordict_utils.assign_non_tensor(
        batch,
        temperature=1.0,
        use_remove_padding=use_remove_padding,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=micro_batch,
        global_batch_size=len(step.ids),
        calculate_entropy=True,
    )
    return batch


def scored(engine, batch: TensorDict, rule: str | None, **config) -> dict[str, list[torch.Tensor]]:
    """Return the outputs of the pass for the old log-probabilities, of each response's tokens."""
    if rule is not None:
        tensordict_utils.assign_non_tensor(batch, **{REQUEST: VerlCredit(rule, config).document()})
    with engine.eval_mode():
        output = engine.infer_batch(batch)
    batch.pop(REQUEST, None)
    lengths = batch["responses"].offsets().diff().tolist()
    return {
        name: [value[-length - 1 : -1] for value, length in zip(nested.unbind(), lengths, strict=True)]
        for name, nested in output["model_output"].items()
    }


def gradient_of(engine, batch: TensorDict, advantages, old_logprobs) -> dict[str, torch.Tensor]:
    """Return the gradient of verl's own loss for GRPO."""
    batch = batch.copy()
    batch["old_log_probs"], batch["advantages"] = _nested(old_logprobs), _nested(advantages)
    actor = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=2,
        ppo_micro_batch_size_per_gpu=2,
        loss_agg_mode="seq-mean-token-mean",
        clip_ratio_low=0.2,
        clip_ratio_high=0.2,
    )

    def loss(model_output, data, dp_group=None):
        return ppo_loss(actor, model_output, data, dp_group)

    with engine.train_mode():
        engine.optimizer_zero_grad()
        engine.forward_backward_batch(batch, loss, forward_only=False)
        gradient = {
            name: (value.grad.full_tensor() if isinstance(value.grad, DTensor) else value.grad).detach().clone()
            for name, value in engine.module.named_parameters()
            if value.grad is not None
        }
        engine.optimizer_zero_grad()
    return gradient


def _nested(values):
    return torch.nested.as_nested_tensor(list(values), layout=torch.jagged)
