"""Accelerators that rounds are compiled for, none of which has to be there.

What a card is, is its maker's data sheet; what XLA needs of it to compile is a part of
that, in the text form of its `GpuTargetConfigProto`.
"""

import os
from typing import Any, NamedTuple

#: Seconds that it takes to start a kernel, as is commonly measured on such cards.
LAUNCH = 4e-6


class Target(NamedTuple):
    """A kind of device.

    Attributes:
      name: Its name as people know it.
      platform: `cuda` or `tpu`, as JAX calls it.
      memory: Bytes that it has.
      bandwidth: Bytes per second between it and its memory.
      peaks: Operations per second at most, by the type of the numbers.
      facts: What XLA's compiler for CUDA is told of it; empty for a TPU.
    """

    name: str
    platform: str
    memory: int
    bandwidth: float
    peaks: dict[str, float]
    facts: dict[str, int | float]


TARGETS = {
    "a6000": Target(
        "RTX A6000",
        "cuda",
        51_041_271_808,
        768.096e9,
        # Outside of tensor cores, and in them.
        {"float32": 38.7e12, "bfloat16": 154.8e12},
        {
            "major": 8,
            "minor": 6,
            "core_count": 84,
            "l2_cache_size": 6_291_456,
            "clock_rate_ghz": 1.8,
            "shared_memory_per_core": 100 * 1024,
            "shared_memory_per_block_optin": 99 * 1024,
            "threads_per_core_limit": 1536,
        },
    ),
    "h100": Target(
        "H100 SXM",
        "cuda",
        85_520_809_984,
        3352e9,
        {"float32": 66.9e12, "bfloat16": 989.4e12},
        {
            "major": 9,
            "minor": 0,
            "core_count": 132,
            "l2_cache_size": 52_428_800,
            "clock_rate_ghz": 1.98,
            "shared_memory_per_core": 228 * 1024,
            "shared_memory_per_block_optin": 227 * 1024,
            "threads_per_core_limit": 2048,
        },
    ),
    "tpu-v5e": Target(
        "TPU v5e",
        "tpu",
        16 * 2**30,
        819e9,
        # Products of float32 are rounded to bfloat16 unless one asks for more.
        {"float32": 197e12, "bfloat16": 197e12},
        {},
    ),
}


def environment(target: Target) -> dict[str, str]:
    """What must be set before JAX is imported to compile for a target."""
    common = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if target.platform == "tpu":
        return common | {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": "v5litepod-4",
            "TPU_WORKER_HOSTNAMES": "localhost",
        }
    # Nothing can be timed, so nothing is tuned: libraries choose their own kernels.
    flags = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
    return common | {"XLA_FLAGS": flags}


def devices(target: Target) -> list[Any]:
    """Devices of a target to compile for: one, or four of a TPU."""
    from jax.experimental import topologies

    if target.platform == "tpu":
        found = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    else:
        found = topologies.get_topology_desc(
            platform="cuda",
            topology_name="",
            topology="1x1x1",
            target_config=_config(target),
        )
    return list(found.devices)


def _config(target: Target) -> str:
    """XLA's description of a card."""
    own = dict(target.facts)
    capability = f"major: {own.pop('major')} minor: {own.pop('minor')}"
    facts = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 * 1024,
        "fpus_per_core": 128,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65_535,
        "block_dim_limit_z": 65_535,
        "memory_bandwidth": int(target.bandwidth),
        "device_memory_size": target.memory,
        "registers_per_core_limit": 65_536,
        "registers_per_block_limit": 65_536,
        **own,
    }
    lines = "\n".join(f"  {name}: {value}" for name, value in facts.items())
    return (
        f"gpu_device_info {{\n{lines}\n"
        f"  cuda_compute_capability {{ {capability} }}\n}}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 8 }\n"
        "runtime_version { major: 12 minor: 9 }\n"
        f'device_description_str: "{target.name}"\n'
    )
