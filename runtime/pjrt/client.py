"""Clients, devices, memories and topologies: words of blocks that Python fills."""

from __future__ import annotations

from hloom.runtime.pjrt.functions import c_function, getter

__all__ = ["FUNCTIONS"]

_DEVICES = {"devices": "load(b, CLIENT_DEVICES)", "num_devices": "load(b, CLIENT_DEVICE_COUNT)"}
_NAME = {"name": "load(b, CLIENT_NAME)", "name_size": "load(b, CLIENT_NAME_SIZE)"}
_VERSION = {"version": "load(b, CLIENT_VERSION)", "version_size": "load(b, CLIENT_VERSION_SIZE)"}
_LOOKUP = """
    client = load(a, A_CLIENT)
    wanted = load(a, A_ID) & 0xffffffff
    if wanted >= load(client, CLIENT_DEVICE_COUNT):
        return pjrt_error_range(0)
    store(a, A_DEVICE, load(load(client, CLIENT_DEVICES), wanted))
    return 0
"""


def _text(name: str, prefix: str) -> dict[str, str]:
    return {name: f"load(b, {prefix}_TEXT)", f"{name}_size": f"load(b, {prefix}_TEXT_SIZE)"}


FUNCTIONS = (
    c_function("Plugin_Initialize", "return 0"),
    c_function("Client_Destroy", "return 0"),
    c_function("Client_UpdateGlobalProcessInfo", "return 0"),
    c_function("Client_DmaMap", "return 0"),
    c_function("Client_DmaUnmap", "return 0"),
    c_function("ExecuteContext_Create", "store(a, A_CONTEXT, malloc(8))\nreturn 0"),
    c_function("ExecuteContext_Destroy", "free(load(a, A_CONTEXT))\nreturn 0"),
    getter("Client_PlatformName", **_NAME),
    getter("Client_PlatformVersion", **_VERSION),
    getter("Client_ProcessIndex", process_index="0"),
    getter("Client_Devices", **_DEVICES),
    getter("Client_AddressableDevices", **_DEVICES),
    c_function("Client_LookupDevice", _LOOKUP),
    c_function("Client_LookupAddressableDevice", _LOOKUP),
    getter(
        "Client_AddressableMemories", memories="load(b, CLIENT_MEMORIES)", num_memories="load(b, CLIENT_MEMORY_COUNT)"
    ),
    getter("Client_TopologyDescription", topology="load(b, CLIENT_TOPOLOGY)"),
    # A topology is the client itself.
    getter("TopologyDescription_PlatformName", **_NAME),
    getter("TopologyDescription_PlatformVersion", **_VERSION),
    getter(
        "TopologyDescription_GetDeviceDescriptions",
        descriptions="load(b, CLIENT_DESCRIPTIONS)",
        num_descriptions="load(b, CLIENT_DEVICE_COUNT)",
    ),
    getter("TopologyDescription_Attributes", attributes="0", num_attributes="0"),
    getter(
        "TopologyDescription_Serialize",
        serialized_bytes="load(b, CLIENT_PLATFORM_BYTES)",
        serialized_bytes_size="load(b, CLIENT_PLATFORM_BYTES_SIZE)",
        serialized="0",
        deleter="load(b, CLIENT_NOTHING)",
    ),
    c_function("TopologyDescription_Destroy", "return 0"),
    getter("DeviceDescription_Id", id="load(b, DESCRIPTION_ID)"),
    getter("DeviceDescription_ProcessIndex", process_index="0"),
    getter("DeviceDescription_Attributes", num_attributes="0", attributes="0"),
    getter("DeviceDescription_Kind", kind="load(b, DESCRIPTION_KIND)", kind_size="load(b, DESCRIPTION_KIND_SIZE)"),
    getter("DeviceDescription_DebugString", **_text("text", "DESCRIPTION")),
    getter("DeviceDescription_ToString", **_text("text", "DESCRIPTION")),
    getter("Device_GetDescription", description="load(b, DEVICE_DESCRIPTION)"),
    getter("Device_IsAddressable", is_addressable="1"),
    getter("Device_LocalHardwareId", id="load(b, DEVICE_ID)"),
    getter(
        "Device_AddressableMemories", memories="load(b, DEVICE_MEMORIES)", num_memories="load(b, DEVICE_MEMORY_COUNT)"
    ),
    getter("Device_DefaultMemory", memory="load(b, DEVICE_MEMORY)"),
    getter(
        "Device_GetAttributes",
        attributes="0",
        num_attributes="0",
        device_attributes="0",
        deleter="load(load(b, DEVICE_CLIENT), CLIENT_NOTHING)",
    ),
    getter(
        "Device_MemoryStats",
        in_use="load(load(b, DEVICE_CLIENT), CLIENT_IN_USE)",
        peak="load(load(b, DEVICE_CLIENT), CLIENT_PEAK)", peak_set="1",
        allocations="load(load(b, DEVICE_CLIENT), CLIENT_ALLOCATIONS)", allocations_set="1",
        largest="load(load(b, DEVICE_CLIENT), CLIENT_LARGEST)", largest_set="1",
        limit_set="0", reserved_set="0", peak_reserved_set="0", reservable_set="0", largest_free_set="0",
        pool="load(load(b, DEVICE_CLIENT), CLIENT_IN_USE) + load(load(b, DEVICE_CLIENT), CLIENT_IDLE)", pool_set="1",
        peak_pool_set="0",
    ),
    getter("Memory_Id", id="load(b, MEMORY_ID)"),
    getter("Memory_Kind", kind="load(b, MEMORY_KIND)", kind_size="load(b, MEMORY_KIND_SIZE)"),
    getter("Memory_Kind_Id", kind_id="load(b, MEMORY_KIND_ID)"),
    getter("Memory_DebugString", **_text("text", "MEMORY")),
    getter("Memory_ToString", **_text("text", "MEMORY")),
    getter(
        "Memory_AddressableByDevices", devices="load(b, MEMORY_DEVICES)", num_devices="load(b, MEMORY_DEVICE_COUNT)"
    ),
)  # fmt: skip
