"""A CPU as one of verl's platforms; verl has none. `VERL_USE_EXTERNAL_MODULES=cpu_platform VERL_PLATFORM=cpu`."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _no_memory(*_, **__):
    return 0


MODULE = SimpleNamespace(
    **{name: getattr(torch.cpu, name) for name in ("current_device", "device_count", "synchronize", "is_available")},
    set_device=lambda *_: None,
    empty_cache=lambda: None,
    max_memory_allocated=_no_memory,
    max_memory_reserved=_no_memory,
    memory_allocated=_no_memory,
    memory_reserved=_no_memory,
    mem_get_info=lambda *_: (0, 0),
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    device_name = "cpu"
    vendor_name = "none"
    device_module = MODULE

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "NO_VISIBLE_DEVICES"

    def nvtx_range(self, msg):
        return nullcontext()

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "CPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None
