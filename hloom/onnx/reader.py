"""Reading .onnx files: protocol buffers to graphs, with every tensor checked before memory is taken for it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from hloom.errors import FileError, UnsupportedError, file_error, import_extra
from hloom.onnx.graph import Graph, Node, Port, Scope

CORRUPT = "export the model again; onnx.checker.check_model says more"


def package() -> Any:
    """The package onnx, which reads the files. Raises UnsupportedError if it is not installed."""
    return import_extra("reading ONNX models", "onnx", "onnx")


def schema_of(name: str, version: int, domain: str) -> Any:
    """ONNX's schema of an op in an opset; None if it has none."""
    onnx = package()
    try:
        return onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return None


def parse(source) -> tuple[Any, Path | None]:
    """(ModelProto, the folder of its external data) of a path, of bytes, of an open file or of a ModelProto."""
    onnx = package()
    if isinstance(source, onnx.ModelProto):
        return source, None
    folder = None
    if isinstance(source, (str, os.PathLike)):
        what = f"the ONNX model {os.fspath(source)!r}"
        try:
            content = Path(source).read_bytes()
        except OSError as error:
            raise file_error(what, error) from None
        folder = Path(source).resolve().parent
    else:
        what = "an ONNX model"
        content = source.read() if hasattr(source, "read") else source
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise FileError(what, f"{type(source).__name__}", "pass a path, bytes, an open file or a ModelProto")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(content))
    except Exception as error:  # the class of the error depends on the version of protobuf
        raise FileError(what, f"{len(content)} bytes that are not an ONNX model ({error})", CORRUPT) from None
    if not model.ir_version or not model.HasField("graph") or not model.graph.output:
        found = "no version of the format" if not model.ir_version else "no graph with outputs"
        raise FileError(what, f"{len(content)} bytes with {found}", CORRUPT)
    return model, folder


def scope_of(owner, functions) -> Scope:
    """The scope of a model or of a function."""
    _require_text(*(o.domain for o in owner.opset_import))
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in owner.opset_import}
    return Scope(versions, functions)


def without_initializers(proto):
    """A copy of a ModelProto without the tensors of its graph."""
    light = type(proto)(ir_version=proto.ir_version, producer_name=proto.producer_name)
    light.opset_import.extend(proto.opset_import)
    light.functions.extend(proto.functions)
    light.graph.name = proto.graph.name
    light.graph.node.extend(proto.graph.node)
    light.graph.input.extend(proto.graph.input)
    light.graph.output.extend(proto.graph.output)
    return light


class Reader:
    """Converts graphs. folder: the location of external data, None if there is none."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        self.onnx = package()

    def graph(self, proto) -> Graph:
        """A graph with all its nodes and initializers."""
        _require_text(proto.name, *(v.name for v in [*proto.input, *proto.output]))
        nodes = tuple(map(self.node, proto.node))
        return Graph(proto.name, tuple(map(self.port, proto.input)), tuple(map(self.port, proto.output)),
                     nodes, self.initializers(proto))  # fmt: skip

    def initializers(self, proto) -> dict[str, np.ndarray]:
        """The tensors of a graph by their names."""
        _require_text(*(t.name for t in proto.initializer), *(s.values.name for s in proto.sparse_initializer))
        return {t.name: self.tensor(t) for t in proto.initializer} | {
            s.values.name: self.sparse(s) for s in proto.sparse_initializer
        }

    def function(self, proto, attributes: dict[str, Any]) -> Graph:
        """The body of a function, with the caller's attributes (AttributeProtos) in place of references."""
        given = {a.name: a for a in proto.attribute_proto} | attributes
        nodes = tuple(self.node(self._bound(node, given)) for node in proto.node)
        inputs, outputs = (tuple(Port(name, None, None) for name in names) for names in (proto.input, proto.output))
        return Graph(proto.name, inputs, outputs, nodes)

    def _bound(self, node, given: dict[str, Any]):
        bound = self.onnx.NodeProto()
        bound.CopyFrom(node)
        kept = []
        for attribute in bound.attribute:
            if attribute.ref_attr_name:
                if (value := given.get(attribute.ref_attr_name)) is None:
                    continue
                name = attribute.name
                attribute = self.onnx.AttributeProto()
                attribute.CopyFrom(value)
                attribute.name = name
            for graph in [attribute.g, *attribute.graphs] if attribute.HasField("g") or attribute.graphs else ():
                inner = [self._bound(n, given) for n in graph.node]
                del graph.node[:]
                graph.node.extend(inner)
            kept.append(attribute)
        kept = [type(a).FromString(a.SerializeToString()) for a in kept]
        del bound.attribute[:]
        bound.attribute.extend(kept)
        return bound

    def node(self, proto) -> Node:
        _require_text(
            proto.op_type, proto.domain, proto.name, *proto.input, *proto.output, *(a.name for a in proto.attribute)
        )
        attributes = {a.name: self.attribute(a, proto) for a in proto.attribute}
        uses = {name for name in proto.input if name}
        for value in attributes.values():
            for graph in value if isinstance(value, tuple) else (value,):
                if isinstance(graph, Graph):
                    uses |= graph.captures()
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        return Node(proto.op_type, domain, proto.name, tuple(proto.input), tuple(proto.output), attributes, proto,
                    frozenset(uses - {""}))  # fmt: skip

    def attribute(self, proto, node) -> Any:
        """The value of an attribute: numbers, str, tuples of these, arrays, Graphs, TypeProtos."""
        kinds = self.onnx.AttributeProto
        simple = {
            kinds.FLOAT: lambda: proto.f,
            kinds.INT: lambda: proto.i,
            kinds.STRING: lambda: _text(proto.s),
            kinds.TENSOR: lambda: self.tensor(proto.t),
            kinds.SPARSE_TENSOR: lambda: self.sparse(proto.sparse_tensor),
            kinds.GRAPH: lambda: self.graph(proto.g),
            kinds.TYPE_PROTO: lambda: proto.tp,
            kinds.FLOATS: lambda: tuple(proto.floats),
            kinds.INTS: lambda: tuple(proto.ints),
            kinds.STRINGS: lambda: tuple(map(_text, proto.strings)),
            kinds.TENSORS: lambda: tuple(map(self.tensor, proto.tensors)),
            kinds.GRAPHS: lambda: tuple(map(self.graph, proto.graphs)),
            kinds.TYPE_PROTOS: lambda: tuple(proto.type_protos),
        }.get(proto.type)
        if simple is None:
            raise UnsupportedError(
                f"attribute {proto.name!r} of {node.op_type} {node.name!r}",
                f"an attribute of kind {proto.type}",
                CORRUPT,
            )
        return simple()

    def port(self, proto) -> Port:
        kinds, kind = [], proto.type
        while (which := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
            kinds.append(which.removesuffix("_type"))
            kind = getattr(kind, which).elem_type
        if which not in ("tensor_type", "sparse_tensor_type"):
            return Port(proto.name, None, None, " ".join([*kinds, which or "tensor"]).replace("_type", ""))
        tensor = getattr(kind, which)
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(map(_size, tensor.shape.dim))
        dtype = dtype_of(tensor.elem_type, f"{proto.name!r}") if tensor.elem_type else None
        return Port(proto.name, dtype, shape, " ".join(kinds) or "tensor")

    def tensor(self, proto) -> np.ndarray:
        """The array of a tensor. Raises FileError if the sizes and the bytes do not fit, before allocating."""
        what = f"the tensor {proto.name!r} of an ONNX model"
        dims = tuple(proto.dims)
        dtype = dtype_of(proto.data_type, what)
        if any(d < 0 for d in dims):
            raise FileError(what, f"the shape {list(dims)}", CORRUPT)
        count = math.prod(dims)
        bits = getattr(self.onnx.TensorProto, "INT2", -1), getattr(self.onnx.TensorProto, "UINT2", -1)
        name = dtype.name
        width = (
            2 if proto.data_type in bits else 4 if name in ("int4", "uint4", "float4_e2m1fn") else dtype.itemsize * 8
        )
        size = -(-count * width // 8)
        if proto.data_location == self.onnx.TensorProto.EXTERNAL:
            raw = self.external(proto, what, size)
            copy = self.onnx.TensorProto(dims=dims, data_type=proto.data_type, raw_data=raw, name=proto.name)
            return self._array(copy, what)
        if proto.HasField("raw_data") and len(proto.raw_data) != size:
            raise FileError(
                what, f"{len(proto.raw_data)} bytes for {dtype.name}{list(dims)}, which has {size}", CORRUPT
            )
        if not proto.HasField("raw_data"):
            fields = (proto.float_data, proto.int32_data, proto.string_data, proto.int64_data, proto.double_data,
                      proto.uint64_data)  # fmt: skip
            if sum(map(len, fields)) * max(1, 8 // width) < count:
                raise FileError(what, f"{sum(map(len, fields))} numbers for the shape {list(dims)}", CORRUPT)
        return self._array(proto, what)

    def _array(self, proto, what: str) -> np.ndarray:
        try:
            array = np.asarray(self.onnx.numpy_helper.to_array(proto))
        except (ValueError, TypeError, OverflowError, KeyError) as error:
            raise FileError(what, str(error), CORRUPT) from None
        if array.dtype.kind in "OSU":
            return np.array([_text(s) for s in array.ravel()], object).reshape(array.shape)
        return array

    def external(self, proto, what: str, size: int) -> bytes:
        """The bytes of a tensor in a file next to the model. Raises FileError for paths that leave its folder."""
        fields = {entry.key: entry.value for entry in proto.external_data}
        location = fields.get("location", "")
        repair = "keep the data files in the model's folder, where its exporter wrote them"
        if self.folder is None:
            raise FileError(what, f"external data in {location!r}, and a model without a folder", "load it by its path")
        path = (self.folder / location).resolve()
        if not location or os.path.isabs(location) or not path.is_relative_to(self.folder):
            raise FileError(what, f"external data in {location!r}, outside of the model's folder", repair)
        try:
            offset, length = int(fields.get("offset") or 0), int(fields.get("length") or size)
        except ValueError:
            raise FileError(what, f"external data at {fields}", CORRUPT) from None
        if length != size or offset < 0:
            raise FileError(what, f"{length} bytes of external data from byte {offset}, for {size}", CORRUPT)
        try:
            with path.open("rb") as file:
                there = os.fstat(file.fileno()).st_size
                if not path.is_file() or offset + size > there:
                    raise FileError(what, f"{location!r} has {there} bytes, of {offset + size}", repair)
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise file_error(what, error) from None

    def sparse(self, proto) -> np.ndarray:
        """A sparse tensor as a dense one."""
        what = f"the sparse tensor {proto.values.name!r} of an ONNX model"
        values, indices, dims = self.tensor(proto.values), self.tensor(proto.indices), tuple(proto.dims)
        if any(d < 0 for d in dims) or math.prod(dims) > 1 << 31:
            raise FileError(what, f"the shape {list(dims)}", "store it as a dense tensor")
        dense = np.zeros(dims, values.dtype)
        places = np.ravel_multi_index(tuple(indices.T), dims) if indices.ndim == 2 else indices
        if places.size and not 0 <= places.min() <= places.max() < dense.size:
            raise FileError(what, "indices outside of its shape", CORRUPT)
        dense.reshape(-1)[places] = values
        return dense


def _size(dimension) -> int | str | None:
    """A size, its name, or None for an unknown one: exporters write -1, and names without a letter, for these."""
    if dimension.HasField("dim_value"):
        return dimension.dim_value if dimension.dim_value >= 0 else None
    return dimension.dim_param if any(c.isalpha() for c in dimension.dim_param) else None


def _require_text(*names) -> None:
    """Raises FileError for a name that is not UTF-8, which protocol buffers return as bytes."""
    for name in names:
        if not isinstance(name, str):
            raise FileError("a name in an ONNX model", f"{name!r:.60}, which is not UTF-8", CORRUPT)


def _text(value) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def dtype_of(number: int, what: str = "a value") -> np.dtype:
    """The dtype of a type of ONNX; strings are object. Raises UnsupportedError for an unknown one."""
    onnx = package()
    if number == onnx.TensorProto.STRING:
        return np.dtype(object)
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    except KeyError:
        raise UnsupportedError(f"the type of {what}", f"the type {number}, which the installed onnx does not know",
                               "install a newer onnx") from None  # fmt: skip
