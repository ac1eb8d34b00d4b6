"""The backend of CPU devices."""

from __future__ import annotations

from hloom.backends.cpu.compilation import CpuExecutable, compile_module
from hloom.backends.cpu.executor import CpuExecutor
from hloom.ir.module import Module
from hloom.platforms.backend import CompileOptions, DeviceBackend, Executable, ExecutorRequest
from hloom.platforms.names import parse_device_name


class CpuBackend(DeviceBackend):
    """Compiles programs that run on one CPU device, and the parts of others that do."""

    def compile(self, module: Module, options: CompileOptions) -> CpuExecutable:
        """Raises DeviceError where the program needs more memory than `hl.config.cpu_memory`."""
        donated = options.donated.union(options.updates.values())
        if options.autotune:
            from hloom.backends.cpu.autotune import autotuned  # with the printer of HLO text: 5 ms of every start

            return autotuned(
                module, options.arguments(), fusion=options.fusion, donated=donated, updates=options.updates
            )
        index = parse_device_name(options.device).index
        return compile_module(
            module,
            fusion=options.fusion,
            donated=donated,
            device=index,
            updates=options.updates,
            steady=options.steady,
        )

    def compile_open(self, module: Module, options: CompileOptions) -> Executable:
        from hloom.backends.cpu.open_sizes import OpenExecutable  # 10 ms of every start

        return OpenExecutable(module, options, parse_device_name(options.device).index)

    def executor(self, request: ExecutorRequest) -> CpuExecutor:
        return CpuExecutor(request)
