"""Devices by the names that published programs import."""

from ...device import (
    CompNode,
    DeviceType,
    get_cuda_driver_version,
    get_cuda_version,
    get_cudnn_version,
    get_tensorrt_version,
    set_prealloc_config,
    what_is_xpu,
)

__all__ = [
    "CompNode", "DeviceType", "get_cuda_driver_version", "get_cuda_version", "get_cudnn_version", "get_tensorrt_version",
    "set_prealloc_config", "what_is_xpu",
]  # fmt: skip
