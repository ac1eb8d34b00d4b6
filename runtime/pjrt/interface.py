"""The C interface of PJRT as a table: its functions in order, the words of their arguments, its constants.

Source: `xla/pjrt/c/pjrt_c_api.h` of OpenXLA (Apache 2.0), at the version below. An argument struct begins with its size
and the address of its extensions; FIELDS names the 8-byte words that follow. A field of less than 8 bytes has its own
word, with padding, except where a name contains a `+`: two 4-byte fields in one word, the first one low.
"""

from __future__ import annotations

__all__ = [
    "COMPARED_MINOR",
    "FIELDS",
    "FUNCTIONS",
    "HEADER_WORDS",
    "MAJOR",
    "MINOR",
    "TABLE_HEADER_WORDS",
    "TESTED_JAXLIB",
    "TYPES",
]

MAJOR, MINOR = 0, 80  # of the interface that the table implements
COMPARED_MINOR = 112  # of the newest interface that the table was compared with: newer ones may have further functions
TESTED_JAXLIB = (0, 10)  # the versions of jaxlib that the tests run with
HEADER_WORDS = 2  # of an argument struct
TABLE_HEADER_WORDS = 5  # of the table: its size, extensions, and the version (3 words)

# Numbers of PJRT_Buffer_Type, by hloom's names of dtypes.
TYPES = {
    "pred": 1, "s8": 2, "s16": 3, "s32": 4, "s64": 5, "u8": 6, "u16": 7, "u32": 8, "u64": 9, "f16": 10, "f32": 11,
    "f64": 12, "bf16": 13, "c64": 14, "c128": 15, "f8e5m2": 16, "f8e4m3fn": 17, "f8e4m3b11fnuz": 18, "f8e5m2fnuz": 19,
    "f8e4m3fnuz": 20, "s4": 21, "u4": 22, "s2": 24, "u2": 25, "f8e4m3": 26, "f8e3m4": 27, "f8e8m0fnu": 28,
    "f4e2m1fn": 29,
}  # fmt: skip

# Codes of errors (absl's status codes).
CODES = {
    "cancelled": 1, "unknown": 2, "invalid argument": 3, "not found": 5, "resource exhausted": 8,
    "failed precondition": 9, "out of range": 11, "unimplemented": 12, "internal": 13,
}  # fmt: skip

# PJRT_HostBufferSemantics
ONLY_DURING_CALL, UNTIL_TRANSFER_COMPLETES, IMMUTABLE_ZERO_COPY, MUTABLE_ZERO_COPY = 0, 1, 2, 3
TILED, STRIDES = 0, 1  # PJRT_Buffer_MemoryLayout_Type
STRING, INT64, INT64_LIST, FLOAT, BOOL = 0, 1, 2, 3, 4  # PJRT_NamedValue_Type

FUNCTIONS = tuple(
    """
    Error_Destroy Error_Message Error_GetCode Plugin_Initialize Plugin_Attributes Event_Destroy Event_IsReady
    Event_Error Event_Await Event_OnReady Client_Create Client_Destroy Client_PlatformName Client_ProcessIndex
    Client_PlatformVersion Client_Devices Client_AddressableDevices Client_LookupDevice
    Client_LookupAddressableDevice Client_AddressableMemories Client_Compile Client_DefaultDeviceAssignment
    Client_BufferFromHostBuffer DeviceDescription_Id DeviceDescription_ProcessIndex DeviceDescription_Attributes
    DeviceDescription_Kind DeviceDescription_DebugString DeviceDescription_ToString Device_GetDescription
    Device_IsAddressable Device_LocalHardwareId Device_AddressableMemories Device_DefaultMemory
    Device_MemoryStats Memory_Id Memory_Kind Memory_DebugString Memory_ToString Memory_AddressableByDevices
    Executable_Destroy Executable_Name Executable_NumReplicas Executable_NumPartitions Executable_NumOutputs
    Executable_SizeOfGeneratedCodeInBytes Executable_GetCostAnalysis Executable_OutputMemoryKinds
    Executable_OptimizedProgram Executable_Serialize LoadedExecutable_Destroy LoadedExecutable_GetExecutable
    LoadedExecutable_AddressableDevices LoadedExecutable_Delete LoadedExecutable_IsDeleted
    LoadedExecutable_Execute Executable_DeserializeAndLoad LoadedExecutable_Fingerprint Buffer_Destroy
    Buffer_ElementType Buffer_Dimensions Buffer_UnpaddedDimensions Buffer_DynamicDimensionIndices
    Buffer_GetMemoryLayout Buffer_OnDeviceSizeInBytes Buffer_Device Buffer_Memory Buffer_Delete Buffer_IsDeleted
    Buffer_CopyToDevice Buffer_ToHostBuffer Buffer_IsOnCpu Buffer_ReadyEvent Buffer_UnsafePointer
    Buffer_IncreaseExternalReferenceCount Buffer_DecreaseExternalReferenceCount
    Buffer_OpaqueDeviceMemoryDataPointer CopyToDeviceStream_Destroy CopyToDeviceStream_AddChunk
    CopyToDeviceStream_TotalBytes CopyToDeviceStream_GranuleSize CopyToDeviceStream_CurrentBytes
    TopologyDescription_Create TopologyDescription_Destroy TopologyDescription_PlatformName
    TopologyDescription_PlatformVersion TopologyDescription_GetDeviceDescriptions TopologyDescription_Serialize
    TopologyDescription_Attributes Compile Executable_OutputElementTypes Executable_OutputDimensions
    Buffer_CopyToMemory Client_CreateViewOfDeviceBuffer Executable_Fingerprint Client_TopologyDescription
    Executable_GetCompiledMemoryStats Memory_Kind_Id ExecuteContext_Create ExecuteContext_Destroy
    Buffer_CopyRawToHost AsyncHostToDeviceTransferManager_Destroy AsyncHostToDeviceTransferManager_TransferData
    Client_CreateBuffersForAsyncHostToDevice AsyncHostToDeviceTransferManager_RetrieveBuffer
    AsyncHostToDeviceTransferManager_Device AsyncHostToDeviceTransferManager_BufferCount
    AsyncHostToDeviceTransferManager_BufferSize AsyncHostToDeviceTransferManager_SetBufferError
    AsyncHostToDeviceTransferManager_AddMetadata Client_DmaMap Client_DmaUnmap Client_CreateUninitializedBuffer
    Client_UpdateGlobalProcessInfo TopologyDescription_Deserialize Client_CreateAliasBuffer
    Client_FulfillAliasBuffer LoadedExecutable_GetDeviceAssignment Client_CreateErrorBuffer
    AsyncHostToDeviceTransferManager_TransferLiteral Buffer_CopyRawToHostFuture Device_PoisonExecution
    Device_CreateAsyncTrackingEvent AsyncTrackingEvent_Destroy Executable_GetCompileOptions
    Buffer_DonateWithControlDependency Event_Create Event_Set Device_GetAttributes

    """.split()
)

_LAYOUT = (
    "layout_size layout_extensions tiled_size tiled_extensions minor_to_major minor_to_major_size tile_dims "
    "tile_dim_sizes num_tiles layout_type"
)
_SHAPE = "shape_dims shape_num_dims shape_element_type shape_layout"
_BYTES = "serialized_bytes serialized_bytes_size"

# The words of the arguments of each function that is implemented.
FIELDS: dict[str, tuple[str, ...]] = {
    name: tuple(words.split())
    for name, words in {
        "Error_Destroy": "error",
        "Error_Message": "error message message_size",
        "Error_GetCode": "error code",
        "Plugin_Initialize": "",
        "Plugin_Attributes": "attributes num_attributes",
        "Event_Destroy": "event",
        "Event_IsReady": "event is_ready",
        "Event_Error": "event",
        "Event_Await": "event",
        "Event_OnReady": "event callback user_arg",
        "Event_Create": "event",
        "Event_Set": "event error_code error_message error_message_size",
        "Client_Create": "create_options num_options kv_get_callback kv_get_user_arg kv_put_callback "
        "kv_put_user_arg client",
        "Client_Destroy": "client",
        "Client_PlatformName": "client name name_size",
        "Client_ProcessIndex": "client process_index",
        "Client_PlatformVersion": "client version version_size",
        "Client_Devices": "client devices num_devices",
        "Client_AddressableDevices": "client devices num_devices",
        "Client_LookupDevice": "client id device",
        "Client_LookupAddressableDevice": "client id device",
        "Client_AddressableMemories": "client memories num_memories",
        "Client_Compile": "client program compile_options compile_options_size executable",
        "Client_DefaultDeviceAssignment": "client replicas+partitions assignment_size assignment",
        "Client_UpdateGlobalProcessInfo": "client process_infos num_process_infos",
        "Client_TopologyDescription": "client topology",
        "Client_BufferFromHostBuffer": "client data type dims num_dims byte_strides num_byte_strides semantics device "
        "memory device_layout done_with_host_buffer buffer",
        "Client_CreateViewOfDeviceBuffer": "client device_buffer dims num_dims element_type layout device on_delete "
        "on_delete_arg stream buffer memory",
        "Client_CreateUninitializedBuffer": f"client {_SHAPE} device memory buffer",
        "Client_DmaMap": "client data size",
        "Client_DmaUnmap": "client data",
        "DeviceDescription_Id": "description id",
        "DeviceDescription_ProcessIndex": "description process_index",
        "DeviceDescription_Attributes": "description num_attributes attributes",
        "DeviceDescription_Kind": "description kind kind_size",
        "DeviceDescription_DebugString": "description text text_size",
        "DeviceDescription_ToString": "description text text_size",
        "Device_GetDescription": "device description",
        "Device_IsAddressable": "device is_addressable",
        "Device_LocalHardwareId": "device id",
        "Device_AddressableMemories": "device memories num_memories",
        "Device_DefaultMemory": "device memory",
        "Device_MemoryStats": "device in_use peak peak_set allocations allocations_set largest largest_set limit "
        "limit_set reserved reserved_set peak_reserved peak_reserved_set reservable reservable_set largest_free "
        "largest_free_set pool pool_set peak_pool peak_pool_set",
        "Device_GetAttributes": "device attributes num_attributes device_attributes deleter",
        "Memory_Id": "memory id",
        "Memory_Kind": "memory kind kind_size",
        "Memory_Kind_Id": "memory kind_id",
        "Memory_DebugString": "memory text text_size",
        "Memory_ToString": "memory text text_size",
        "Memory_AddressableByDevices": "memory devices num_devices",
        "ExecuteContext_Create": "context",
        "ExecuteContext_Destroy": "context",
        "Executable_Destroy": "executable",
        "Executable_Name": "executable name name_size",
        "Executable_NumReplicas": "executable num_replicas",
        "Executable_NumPartitions": "executable num_partitions",
        "Executable_NumOutputs": "executable num_outputs",
        "Executable_SizeOfGeneratedCodeInBytes": "executable size",
        "Executable_GetCostAnalysis": "executable num_properties properties",
        "Executable_OutputMemoryKinds": "executable num_outputs kinds kind_sizes",
        "Executable_OptimizedProgram": "executable program",
        "Executable_Serialize": f"executable {_BYTES} serialized deleter",
        "Executable_GetCompileOptions": f"executable {_BYTES} serialized deleter",
        "Executable_DeserializeAndLoad": "client serialized size executable compile_options compile_options_size",
        "Executable_OutputElementTypes": "executable types num_types",
        "Executable_OutputDimensions": "executable num_outputs dims dim_sizes",
        "Executable_Fingerprint": "executable fingerprint fingerprint_size",
        "Executable_GetCompiledMemoryStats": "executable code arguments outputs alias temporaries host_code "
        "host_arguments host_outputs host_alias host_temporaries peak total",
        "LoadedExecutable_Destroy": "executable",
        "LoadedExecutable_GetExecutable": "loaded executable",
        "LoadedExecutable_AddressableDevices": "executable devices num_devices",
        "LoadedExecutable_Delete": "executable",
        "LoadedExecutable_IsDeleted": "executable is_deleted",
        "LoadedExecutable_Execute": "executable options argument_lists num_devices num_args output_lists "
        "complete_events execute_device",
        "LoadedExecutable_Fingerprint": "executable fingerprint fingerprint_size",
        "LoadedExecutable_GetDeviceAssignment": f"executable {_BYTES} serialized deleter",
        "Buffer_Destroy": "buffer",
        "Buffer_ElementType": "buffer type",
        "Buffer_Dimensions": "buffer dims num_dims",
        "Buffer_UnpaddedDimensions": "buffer dims num_dims",
        "Buffer_DynamicDimensionIndices": "buffer indices num_indices",
        "Buffer_GetMemoryLayout": f"buffer {_LAYOUT}",
        "Buffer_OnDeviceSizeInBytes": "buffer size",
        "Buffer_Device": "buffer device",
        "Buffer_Memory": "buffer memory",
        "Buffer_Delete": "buffer",
        "Buffer_IsDeleted": "buffer is_deleted",
        "Buffer_CopyToDevice": "buffer device copy",
        "Buffer_CopyToMemory": "buffer memory copy",
        "Buffer_CopyRawToHost": "buffer target offset size event",
        "Buffer_ToHostBuffer": "buffer host_layout target target_size event",
        "Buffer_IsOnCpu": "buffer is_on_cpu",
        "Buffer_ReadyEvent": "buffer event",
        "Buffer_UnsafePointer": "buffer pointer",
        "Buffer_OpaqueDeviceMemoryDataPointer": "buffer pointer",
        "Buffer_IncreaseExternalReferenceCount": "buffer",
        "Buffer_DecreaseExternalReferenceCount": "buffer",
        "TopologyDescription_PlatformName": "topology name name_size",
        "TopologyDescription_PlatformVersion": "topology version version_size",
        "TopologyDescription_GetDeviceDescriptions": "topology descriptions num_descriptions",
        "TopologyDescription_Attributes": "topology attributes num_attributes",
        "TopologyDescription_Serialize": f"topology {_BYTES} serialized deleter",
        "TopologyDescription_Destroy": "topology",
    }.items()
}

# Words of a PJRT_Program, a PJRT_ExecuteOptions and a PJRT_Buffer_MemoryLayout, from their begin.
PROGRAM_CODE, PROGRAM_CODE_SIZE, PROGRAM_FORMAT, PROGRAM_FORMAT_SIZE = 2, 3, 4, 5
OPTIONS_KEPT, OPTIONS_KEPT_COUNT = 7, 8  # indices of inputs that may not be donated
LAYOUT_WORDS = {name: word for word, name in enumerate(_LAYOUT.split())}
NAMED_VALUE_WORDS = 7  # size, extensions, name, its size, type, value, its size
