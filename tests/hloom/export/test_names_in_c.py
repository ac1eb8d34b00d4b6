"""Names from outside become data in C: literals, comments, identifiers, headers, files of models."""

import os
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from hostile_names import NAMES, names

import hloom as hl
from hloom.commands import export as command
from hloom.errors import ExportError
from hloom.export.names import LONGEST, c_comment, c_string, identifiers, parameters

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
X = np.ones(3, np.float32)


def compiled(folder, text, *options):
    (folder / "text.c").write_text(text)
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-Wno-unused-variable", "-Wno-comment", *options, "text.c"]
    subprocess.run([*command, "-o", "text"], cwd=folder, check=True, capture_output=True, text=True)
    return subprocess.run([str(folder / "text")], check=True, capture_output=True).stdout


@pytest.mark.quick
@pytest.mark.parametrize("standard", ["-std=c11", "-std=gnu17"])  # with trigraphs, and without
def test_strings_and_comments_of_c(standard, tmp_path):
    wanted = [name for name in names(400) if "\0" not in name]
    lines = [f"/* {c_comment(name)} */ // {c_comment(name)}\n  {c_string(name)}," for name in wanted]
    text = "#include <stdio.h>\nstatic const char *const NAMES[] = {\n" + "\n".join(lines) + "0};\n"
    loop = "for (int k = 0; NAMES[k]; k++) fwrite(NAMES[k], 1, __builtin_strlen(NAMES[k]) + 1, stdout);"
    got = compiled(tmp_path, f"{text}int main(void) {{\n  {loop}\n  return 0;\n}}\n", standard)
    assert got.split(b"\0")[:-1] == [name.encode("utf-8", "surrogatepass") for name in wanted]
    with pytest.raises(ValueError, match="NUL"):
        c_string("a\0b")


def test_identifiers_and_parameters_of_c(tmp_path):
    given = [*names(300), "errno", "EOF", "stdin", "NULL", "linux", "BUFSIZ", "INT8_MAX", "and", "a", "a", "a_2"]
    made = parameters(given)
    assert len(set(made)) == len(given) and max(map(len, made)) < LONGEST + 10
    headers = "".join(
        f"#include <{name}.h>\n" for name in ("errno", "stdint", "stdio", "stdlib", "string", "math", "iso646")
    )
    signature = ", ".join(f"int *{name}" for name in made)
    compiled(tmp_path, f"{headers}int f({signature}) {{ return 0; }}\nint main(void) {{ return 0; }}\n", "-std=gnu17")
    assert identifiers(["a"] * 3 + ["a_2"]) == ["a", "a_2", "a_3", "a_2_2"]


def test_keys_of_dictionaries_are_data(tmp_path):
    """Also an attack that closes the literal and defines a constructor of the library."""
    mark = tmp_path / "mark"
    tail = "create, destroy, run, output_shape, read_state, write_state, save_state, load_state, last_error"
    attack = f'x??/", {tail}}}; __attribute__((constructor)) static void f(void) {{ system("touch {mark}"); }} //'
    tree = {name: k * X for k, name in enumerate([*NAMES, attack])}
    library = hl.export(lambda p: {key: value * 2 for key, value in p.items()}, tree, folder=tmp_path, name="call")
    with library.load() as loaded:
        got = loaded.call(tree)
        assert len({value.name for value in loaded.call.inputs}) == len(tree)
    assert list(got) == list(tree) and not mark.exists()
    assert all((got[name] == 2 * value).all() for name, value in tree.items())
    compiled(tmp_path, '#include <stdio.h>\n#include "call.h"\nint main(void) { return 0; }\n', "-std=gnu17")


def test_arguments_whose_names_are_macros_or_sizes(tmp_path):
    def call(errno, stdin, EOF, call_plain, linux, batch):
        return errno + stdin + EOF + call_plain + linux + batch

    rows = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 2), 3), "float32")
    library = hl.export(call, X, X, X, X, X, rows, folder=tmp_path, name="macros", check="samples")
    (tmp_path / "user.c").write_text('#include <errno.h>\n#include <stdio.h>\n#include "macros.h"\n')
    for language in (["cc", "-std=gnu17"], ["cc", "-xc++", "-std=gnu++17"]):
        subprocess.run([*language, "-Wall", "-Werror", "-fsyntax-only", "user.c"], cwd=tmp_path, check=True)
    with library.load() as loaded:
        assert [v.name for v in loaded.call.inputs][:2] == ["errno", "stdin"]
        np.testing.assert_array_equal(loaded.call(X, X, X, X, X, np.ones((2, 3), "f4")), np.full((2, 3), 6.0))


@pytest.mark.parametrize(
    ("library", "function", "found"),
    [
        ("call", "plain", "call_plain"),
        ("read", "state", "read_state"),
        ("pthread", "f", "pthread_create"),
        ("hloom", "f", "hloom.h"),
        ("m", "constant_0", "constant_0"),
        ("m", 'f"', "letters"),
        ("int", "f", "letters"),
        ("../m", "f", "letters"),
        ("m" * 200, "f", "letters"),
    ],
)
def test_names_of_libraries_and_functions_that_clash(library, function, found, tmp_path):
    with pytest.raises(ExportError, match=found) as error:
        hl.export({function: lambda x: x}, x=X, folder=tmp_path, name=library)
    assert "exit status" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_keys_that_are_equal_as_text_are_refused(tmp_path):
    with pytest.raises(ExportError, match="equal as text"):
        hl.export(lambda p: p[1] + p["1"], {1: X, "1": X}, folder=tmp_path, name="m")


def test_a_model_of_onnx_with_hostile_names(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    chosen = [name for name in NAMES if name and "\0" not in name and not name.startswith("\ud800")]
    chosen = [name for name in chosen if name.isprintable() or "\n" in name][:24]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in chosen]
    outputs = [helper.make_tensor_value_info(f"{name} out", TensorProto.FLOAT, [3]) for name in chosen]
    weight = numpy_helper.from_array(np.full(3, 2, np.float32), 'w??/" */ \n')
    nodes = [helper.make_node("Mul", [name, weight.name], [f"{name} out"], name=name) for name in chosen]
    graph = helper.make_graph(nodes, "g??/", inputs, outputs, [weight], doc_string="*/")
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)], producer_name="??/")
    file = tmp_path / 'evil"; ??\\ é.onnx'
    onnx.save(model, file)
    options = SimpleNamespace(
        program=str(file), arguments=[], folder=str(tmp_path / "out"), name=None, target=None, features=None,
        kind="shared", weights="embedded", compiler=None, fetch=None,
    )  # fmt: skip
    assert command.run(options) == 0
    (path,) = (tmp_path / "out").glob("*.so")
    with hl.export.load(path) as loaded:
        (function,) = loaded.functions.values()
        results = function(*[k * X for k in range(len(chosen))])
        assert all((results[f"{name} out"] == 2 * k).all() for k, name in enumerate(chosen))
    assert sorted(os.listdir(tmp_path / "out"))[:2] == sorted([f"{loaded.name}.h", "hloom.h"])
