"""The backend of GPUs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from hloom.backends.cuda.autotuner import has_solver
from hloom.backends.cuda.compilation import compile_for_cuda, parse_target
from hloom.backends.cuda.devices import cuda_device
from hloom.backends.cuda.executor import CudaExecutor
from hloom.backends.cuda.spmd.communicators import World, group_members
from hloom.compiler.targets.cuda.libraries.linear_algebra import has_routine
from hloom.compiler.targets.cuda.target import NoCudaKernelError, has_cuda_kernel
from hloom.config import config
from hloom.ir.module import Instruction, Module
from hloom.platforms.backend import CompileOptions, DeviceBackend, Executable, ExecutorRequest, RemoteEnd
from hloom.platforms.kinds import MULTI_DEVICE, load_backend
from hloom.platforms.names import parse_device_name


class CudaBackend(DeviceBackend):
    """Compiles programs for one GPU or for an architecture, and the parts of others on a GPU."""

    def check_target(self, text: str) -> None:
        """Raises AttributeValueError for a target of another form than 'cuda:sm_90'."""
        parse_target(text)

    def compile(self, module: Module, options: CompileOptions) -> Executable:
        """Raises NoCudaKernelError, unless soft placement finds another device for a part of it."""
        if options.target is not None:
            target = parse_target(options.target)
            return compile_for_cuda(module, target, fusion=options.fusion, donated=options.donated)
        index = parse_device_name(options.device).index
        arch = cuda_device(index).facts.arch
        try:
            return compile_for_cuda(module, arch, fusion=options.fusion, donated=options.donated, device=index)
        except NoCudaKernelError:
            if config.soft_placement:
                return load_backend(MULTI_DEVICE).compile(module, options)
            raise

    def has_kernel(self, instruction: Instruction) -> bool:
        if has_routine(instruction):
            return has_solver()
        return instruction.opcode == "custom-call" or has_cuda_kernel(instruction)

    def connect(self, ends: Sequence[RemoteEnd]) -> None:
        """Raises CudaLibraryError, DistributedError."""
        for end in ends:
            group_members(World(end.gpus, end.turn), ((0, 1),))

    def compile_spmd(self, module: Module, options: CompileOptions, **facts) -> Executable:
        """A partitioned module for several GPUs. facts: as of `hloom.backends.cuda.spmd.program.compile_spmd`."""
        # By its name: collectives are a matter of programs on several GPUs.
        return importlib.import_module("hloom.backends.cuda.spmd.program").compile_spmd(module, options, **facts)

    def executor(self, request: ExecutorRequest) -> CudaExecutor:
        return CudaExecutor(request, cuda_device(request.index).facts.arch)
