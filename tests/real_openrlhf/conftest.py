"""OpenRLHF's own policy worker, on a CPU; where OpenRLHF is not installed nothing here is collected.

OpenRLHF imports flash-attn and vLLM wherever it is imported, and both need a GPU to be of use. In their place stand
empty modules: nothing here calls them.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def stand_in(name: str, **attributes: Any) -> None:
    module = ModuleType(name)
    module.__spec__, module.__path__ = ModuleSpec(name, None), []
    vars(module).update(attributes)
    sys.modules[name] = module


if find_spec("openrlhf") is None:
    collect_ignore_glob = ["*.py"]
else:
    stand_in("flash_attn")
    stand_in("flash_attn.bert_padding", index_first_axis=None, pad_input=None, rearrange=None, unpad_input=None)
    stand_in("flash_attn.utils")
    stand_in("flash_attn.utils.distributed", all_gather=None)
    stand_in("vllm", __version__="0.29.0")
    stand_in("vllm.inputs", TokensPrompt=None)
    stand_in("vllm.utils", random_uuid=None)
