"""The catalogue: kernels are read and not run, and no file can take the others with it."""

import hashlib
import importlib
import importlib.metadata
import sys

import pytest

from kernels import catalog, needs
from kernels.catalog import UnknownName, get_kernel, kernels, load
from kernels.child.__main__ import fault
from kernels.kernel_files import Declared
from kernels.needs import Needs, as_text, how_to_install

HEAD = "from kernels.catalog import kernel, cuda\n"
SIMPLE = (
    HEAD
    + '''
@kernel("attention", backend="pytorch")
def my_own_way(q, k, v, *, causal, scale):
    """One line that says how.

    More of it.
    """
    return "my answer"
'''
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of attention kernels on KERNEL_PATH."""
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    (tmp_path / "attention").mkdir()
    return tmp_path / "attention"


def declared(folder, arguments, name="planted.py"):
    """The kernel that a file with these arguments of @kernel declares."""
    (folder / name).write_text(f"{HEAD}\n@kernel({arguments})\ndef planted(q, k, v, *, causal, scale): ...\n")
    return {info.path.split("/")[-1]: info for info in kernels("attention")}[name]


# --- read, not run ----------------------------------------------------------------------------------------------------


def test_a_kernel_is_what_its_decorator_says(folder):
    (folder / "mine.py").write_text(SIMPLE)
    info = get_kernel("attention", "my-own-way")
    assert (info.full_name, info.backend, info.dtypes, info.limits) == ("attention/my-own-way", "pytorch", (), {})
    assert info.doc == "One line that says how."
    assert info.needs == Needs()
    assert info.sha256 == hashlib.sha256(SIMPLE.encode()).hexdigest()
    assert info.error == ""


def test_a_name_defaults_to_that_of_the_function_with_dashes_and_may_be_given(folder):
    assert declared(folder, '"attention", backend="x"').name == "planted"
    assert declared(folder, '"attention", backend="x", name="other_name"').name == "other_name"


def test_a_file_is_listed_though_it_fails_when_it_is_run(folder):
    (folder / "mine.py").write_text(SIMPLE + "\nraise SystemExit('do not run me')\n")
    assert get_kernel("attention", "my-own-way").error == ""


def test_a_file_is_listed_though_it_imports_what_nobody_has(folder):
    (folder / "mine.py").write_text("import a_package_that_nobody_has\n" + SIMPLE)
    assert get_kernel("attention", "my-own-way").error == ""
    assert "a_package_that_nobody_has" not in sys.modules


def test_a_file_with_several_kernels_declares_them_all_and_other_functions_none(folder):
    (folder / "two.py").write_text(SIMPLE + SIMPLE.replace("my_own_way", "another") + "\ndef helper(): ...\n")
    ours = {info.name for info in kernels("attention") if info.path.endswith("two.py")}
    assert ours == {"my-own-way", "another"}


def test_a_kernel_of_another_operation_in_this_folder_is_listed_with_the_reason(folder):
    (folder / "mine.py").write_text(SIMPLE.replace('"attention"', '"gemm"'))
    (info,) = [info for info in kernels() if info.path.endswith("mine.py")]
    assert "is for gemm, in the folder of attention" in info.error


def test_a_kernel_of_another_folder_says_which(folder):
    (folder / "mine.py").write_text(SIMPLE)
    assert get_kernel("attention", "my-own-way").folder == str(folder.parent)
    assert get_kernel("attention", "sdpa").folder == ""


def test_files_are_read_as_they_are_now(folder):
    (folder / "mine.py").write_text(SIMPLE)
    before = get_kernel("attention", "my-own-way").sha256
    (folder / "mine.py").write_text(SIMPLE + "\n# changed\n")
    assert get_kernel("attention", "my-own-way").sha256 != before
    (folder / "mine.py").unlink()
    with pytest.raises(UnknownName):
        get_kernel("attention", "my-own-way")


def test_a_later_folder_replaces_a_kernel_of_the_same_name(folder, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("more")
    (other / "attention").mkdir()
    (folder / "sdpa.py").write_text(SIMPLE.replace("my_own_way", "sdpa"))
    (other / "attention" / "sdpa.py").write_text(SIMPLE.replace("my_own_way", "sdpa") + "# later\n")
    assert get_kernel("attention", "sdpa").path == str(folder / "sdpa.py")
    monkeypatch.setenv("KERNEL_PATH", f"{folder.parent}:{other}::/nowhere")
    assert get_kernel("attention", "sdpa").path == str(other / "attention" / "sdpa.py")


def test_every_kernel_of_ours_can_be_read_and_the_baseline_comes_first():
    known = kernels()
    assert {info.error for info in known} == {""}
    assert all(info.doc.endswith(".") for info in known)
    for name, operation in catalog.operations().items():
        assert kernels(name)[0].name == operation.baseline


# --- files that cannot be read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, reason",
    {
        "a syntax error": (b"def broken(:\n", "invalid syntax"),
        "a NUL": (b"x = 1\x00", "null bytes"),
        "not UTF-8": (b'x = "\xe9"\n', "utf-8"),
        "no backend": (b'@kernel("attention")\ndef f(): ...\n', "backend"),
        "an option that does not exist": (b'@kernel("attention", backend="x", speed=3)\ndef f(): ...\n', "speed"),
        "a name that is computed": (
            b'@kernel("attention", backend=WHO)\ndef f(): ...\n',
            "backend must be a literal",
        ),
        "limits that are no lists": (
            b'@kernel("attention", backend="x", limits={"seq_len": 3})\ndef f(): ...\n',
            "int",
        ),
        "a size that does not exist": (
            b'@kernel("attention", backend="x", limits={"s": (3,)})\ndef f(): ...\n',
            "seq_len",
        ),
        "limits that are no dict": (
            b'@kernel("attention", backend="x", limits=(64,))\ndef f(): ...\n',
            "limits is (64,)",
        ),
        "needs that are no cuda(...)": (
            b'@kernel("attention", backend="x", needs="cuda")\ndef f(): ...\n',
            "cuda(...)",
        ),
        "needs as a dict": (b'@kernel("attention", backend="x", needs={"cuda": 1})\ndef f(): ...\n', "cuda(...)"),
        "a forgotten comma": (b'@kernel("attention", backend="x", dtypes=("float16"))\ndef f(): ...\n', "a tuple of"),
        "an unknown dtype": (b'@kernel("attention", backend="x", dtypes=("fp16",))\ndef f(): ...\n', "float16"),
        "a name with a comma": (
            b'@kernel("attention", backend="x", name="a,b")\ndef f(): ...\n',
            "the name 'a,b' is not",
        ),
        "a name that is no text": (b'@kernel("attention", backend="x", name=3)\ndef f(): ...\n', "the name 3 is not"),
        "no arguments at all": (b"@kernel\ndef f(): ...\n", "needs its arguments"),
        "nested too deeply": (b"x = " + b"(" * 5000 + b")" * 5000, ""),
        "more signs than Python can parse": (b"x = " + b"-" * 20_000 + b"1", "expressions are nested too deeply"),
    }.values(),
)
def test_a_file_that_cannot_be_read_is_one_kernel_with_the_reason(folder, content, reason):
    (folder / "broken_one.py").write_bytes(content)
    info = get_kernel("attention", "broken-one")
    assert info.error.startswith("broken_one.py cannot be read: ")
    assert reason in info.error
    assert info.why_not_on("cuda", 9.0) == info.error
    assert get_kernel("attention", "sdpa").error == "", "the others are there"


def test_a_link_to_nowhere_is_one_kernel_with_the_reason(folder):
    (folder / "gone.py").symlink_to(folder / "nothing.py")
    info = get_kernel("attention", "gone")
    assert "No such file" in info.error
    assert info.sha256 == ""


# --- what a kernel needs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("cutlass.cute", "pip install nvidia-cutlass-dsl"),
        ("flash_attn", "pip install flash-attn"),
        ("flash_attn.cute", "pip install flash-attn-4"),
        ("flashinfer.norm", "pip install flashinfer-python"),
        ("quack", "pip install quack-kernels"),
        ("cv2", "pip install opencv-python"),
        ("torch.nosuch", ""),
        ("helper_of_mine", ""),
    ],
)
def test_only_known_packages_have_a_command_that_installs_them(monkeypatch, tmp_path, module, said):
    """A name that nobody knows is not guessed: anybody may have taken it. One that is there lacks something else."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    sys.path_importer_cache.clear()
    assert how_to_install(module) == said
    (tmp_path / "cutlass").mkdir()
    (tmp_path / "cutlass" / "__init__.py").touch()
    importlib.invalidate_caches()
    assert how_to_install("cutlass.nosuch") == ""


@pytest.mark.parametrize(("package", "said"), [("cutlass", ": pip install nvidia-cutlass-dsl"), ("nosuch_package", "")])
def test_an_import_that_fails_says_what_pip_calls_the_package(package, said):
    told = fault(ModuleNotFoundError(f"No module named '{package}'", name=package), must_replace=False)
    assert told.message == f"ModuleNotFoundError: No module named '{package}'{said}"


def test_why_a_device_will_not_do(folder):
    def why(arguments, kind="cuda", capability=8.0):
        return declared(folder, f'"attention", backend="x", needs={arguments}').why_not_on(kind, capability)

    assert why("cuda()") == ""
    assert why("cuda()", "cpu", None) == "needs a CUDA device"
    assert why("cuda(min_capability=8.0)") == ""
    assert why("cuda(min_capability=9.0)") == "needs compute capability 9, this device has 8"
    assert why("cuda(8.9)", "cuda", 8.6) == "needs compute capability 8.9, this device has 8.6"
    assert why('cuda(packages=("numpy",))') == ""
    assert (
        why('cuda(packages=("numpy", "not_there"))')
        == "package not_there is not installed on this device: pip install not-there"
    )
    assert (
        why('cuda(packages=("not_there.inside",))')
        == "package not_there is not installed on this device: pip install not-there"
    )


def test_an_architecture_is_that_one_and_no_later(folder):
    info = declared(folder, '"attention", backend="x", needs=cuda(architecture=9.0)')
    assert info.why_not_on("cuda", 9.0) == ""
    assert info.why_not_on("cuda", 10.0) == "needs compute capability 9.0 exactly, this device has 10.0"
    assert info.why_not_on("cuda", 8.9) == "needs compute capability 9.0 exactly, this device has 8.9"


@pytest.mark.parametrize(
    "version, will_do",
    {
        "3.6": True,
        "3.6.0": True,
        "3.6.1+cu130": True,
        "3.10.0": False,  # not by the alphabet
        "3.7.0rc1": False,
        "3.5.1": False,
        "unknown": False,
    }.items(),
)
def test_which_versions_of_triton_will_do(folder, monkeypatch, version, will_do):
    monkeypatch.setattr(needs, "_version", lambda package: version)
    info = declared(folder, '"attention", backend="x", needs=cuda(triton=(">=3.6", "<3.7"))')
    why = "" if will_do else f"needs Triton >=3.6 and <3.7, this host has {version}"
    assert info.why_not_on("cuda", 9.0) == why


def test_a_version_is_read_without_importing_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", None)  # an import of it would fail
    assert needs._version("pytest") == importlib.metadata.version("pytest")
    assert needs._version("a-package-that-nobody-has") is None


def test_a_host_without_triton_is_told_so(folder, monkeypatch):
    monkeypatch.setattr(needs, "_version", lambda package: None)
    info = declared(folder, '"attention", backend="x", needs=cuda(triton=(">=3.6",))')
    assert info.why_not_on("cuda", 9.0) == "package triton is not installed on this device: pip install triton"


@pytest.mark.parametrize("bounds", ['">=3.6"', '("3.6",)', '(">=3.6rc1",)', '("==3.6",)', "(3.6,)"])
def test_bounds_of_a_version_that_cannot_be_read_are_said(folder, bounds):
    assert "must be bounds" in declared(folder, f'"attention", backend="x", needs=cuda(triton={bounds})').error


def test_a_kernel_without_needs_runs_anywhere(folder):
    info = declared(folder, '"attention", backend="x"')
    assert info.why_not_on("cpu", None) == info.why_not_on("cuda", 12.0) == ""


def test_why_a_workload_will_not_do(folder):
    info = declared(folder, '"attention", backend="x", dtypes=("float16",), limits={"head_dim": (64, 128)}')
    sizes = {"batch": 1, "heads": 8, "seq_len": 99}
    assert info.why_not_for("float16", sizes | {"head_dim": 64}) == ""
    assert info.why_not_for("float32", sizes | {"head_dim": 64}) == "does not support float32"
    assert info.why_not_for("float16", sizes | {"head_dim": 32}) == "does not support head_dim=32, only 64, 128"
    assert declared(folder, '"attention", backend="x"').why_not_for("float32", sizes) == ""


# --- names ------------------------------------------------------------------------------------------------------------


def test_what_does_not_exist_is_answered_with_what_does():
    with pytest.raises(UnknownName, match=r"there is no operation 'sort'; there are: attention, "):
        catalog.get_operation("sort")
    with pytest.raises(UnknownName, match=r"there is no kernel 'attention/sort'; there are: sdpa, .*eager"):
        get_kernel("attention", "sort")


# --- loaded -----------------------------------------------------------------------------------------------------------


def test_what_is_loaded_is_hashed_as_it_was_run(folder):
    (folder / "mine.py").write_text(SIMPLE)
    info = get_kernel("attention", "my-own-way")
    changed = SIMPLE.replace("my answer", "another answer")
    (folder / "mine.py").write_text(changed)
    loaded = load(info)
    assert loaded.call(1, 2, 3, causal=False, scale=1.0) == "another answer"
    assert (loaded.source, loaded.sha256) == (changed, hashlib.sha256(changed.encode()).hexdigest())
    assert loaded.sha256 != info.sha256


ANNOTATED = """
from kernels.catalog import kernel

def sized(x: 2 + 3):
    return sized.__annotations__["x"]

@kernel("attention", backend="pytorch")
def annotated(q, k, v, *, causal, scale):
    return sized(q)
"""


def test_a_files_annotations_are_what_it_wrote_and_not_text(folder):
    """Languages inside Python, such as TileLang's, read them."""
    (folder / "mine.py").write_text(ANNOTATED)
    assert load(get_kernel("attention", "annotated")).call(1, 2, 3, causal=False, scale=1.0) == 5


def test_a_kernel_that_its_file_no_longer_declares_is_unknown(folder):
    (folder / "mine.py").write_text(SIMPLE)
    info = get_kernel("attention", "my-own-way")
    (folder / "mine.py").write_text(SIMPLE.replace("my_own_way", "renamed"))
    with pytest.raises(UnknownName, match=r"mine\.py no longer declares attention/my-own-way"):
        load(info)


def test_a_file_that_changes_while_it_is_run_is_not_taken(folder):
    (folder / "mine.py").write_text(f"{SIMPLE}\nopen(__file__, 'a').write('# more')\n")
    with pytest.raises(RuntimeError, match="was changed while it was being loaded"):
        load(get_kernel("attention", "my-own-way"))


def test_a_comment_that_is_not_utf_8_is_no_reason_to_refuse_a_kernel(folder):
    (folder / "mine.py").write_bytes(SIMPLE.encode() + b"# caf\xe9\n")
    assert load(get_kernel("attention", "my-own-way")).source.endswith("# caf\ufffd\n")


def test_the_decorator_and_the_reader_agree_on_every_kernel_that_can_be_loaded_here(folder):
    pytest.importorskip("torch")
    for info in kernels("attention"):
        if info.why_not_on("cpu", None) == "":
            assert callable(load(info).call), info.full_name


@pytest.mark.parametrize("wrapper", ["Nameless", "functools.partial"])
def test_a_kernel_may_be_wrapped_in_something_that_has_no_name_or_another(folder, wrapper):
    """As torch.library.custom_op and torch.jit.script wrap functions."""
    (folder / "mine.py").write_text(
        HEAD
        + f"""
import functools

class Nameless:
    def __init__(self, function):
        self.function = function
    def __call__(self, *args, **options):
        return self.function(*args, **options)

@kernel("attention", backend="pytorch")
@{wrapper}
def my_own_way(q, k, v, *, causal, scale):
    return "my answer"
"""
    )
    assert load(get_kernel("attention", "my-own-way")).call(1, 2, 3, causal=False, scale=1.0) == "my answer"


OPERATOR = """
import torch

LIBRARY = torch.library.Library("ours", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: 2 * x, "CPU")

@kernel("attention", backend="pytorch")
def first(q, k, v, *, causal, scale):
    return torch.ops.ours.twice(q)

@kernel("attention", backend="pytorch")
def second(q, k, v, *, causal, scale):
    return torch.ops.ours.twice(k)
"""


def test_two_kernels_of_a_file_that_declares_an_operator_are_loaded_beside_each_other(folder):
    """PyTorch takes a declaration once: a file that ran for each of its kernels could be loaded for one of them only."""
    torch = pytest.importorskip("torch")
    (folder / "mine.py").write_text(HEAD + OPERATOR)
    loaded = load(get_kernel("attention", "first"))
    first, second = loaded.call, load(get_kernel("attention", "second"), [loaded]).call
    q, k = torch.ones(1), torch.full((1,), 5.0)
    found = [call(q, k, k, causal=False, scale=1.0).item() for call in (first, second)]
    assert found == [2.0, 10.0]
    (folder / "mine.py").write_text(HEAD + OPERATOR.replace("ours", "theirs").replace("2 * x", "3 * x"))
    another = load(get_kernel("attention", "first"), [loaded])
    assert another.call(q, k, k, causal=False, scale=1.0).item() == 3.0, "the file has changed"


# --- another kind of file ---------------------------------------------------------------------------------------------


class OneLiners:
    """A reader: each line of a file is a kernel's name, and the kernel returns it."""

    def declared(self, source, path):
        for line in source.decode().split():
            yield Declared(line, ("attention",), {"backend": "letters", "needs": Needs("cuda", 9.0)}, "A line.")

    def load(self, source, path, full_name):
        name = full_name.split("/")[1]
        return (lambda *_, **__: name) if name.encode() in source.split() else None


def test_values_that_a_size_may_take_are_a_range_only_without_a_gap():
    found = [as_text(allowed) for allowed in (tuple(range(1, 17)), (1, 2, 4, 5), (64, 128), ("case",), (True, False))]
    assert found == ["1 to 16", "1, 2, 4, 5", "64, 128", "case", "True, False"]


def test_a_file_is_read_and_loaded_by_the_reader_of_its_extension(folder, monkeypatch):
    (folder / "mine.txt").write_text("first second\n")
    with pytest.raises(UnknownName):
        get_kernel("attention", "first")
    monkeypatch.setitem(catalog.READERS, ".txt", OneLiners())
    info = get_kernel("attention", "second")
    assert (info.backend, info.doc, info.error) == ("letters", "A line.", "")
    assert info.why_not_on("cpu", None) == "needs a CUDA device"
    loaded = load(info)
    assert (loaded.call(), loaded.source, loaded.sha256) == ("second", "first second\n", info.sha256)
    (folder / "mine.txt").write_text("first\n")
    with pytest.raises(UnknownName, match=r"mine\.txt no longer declares attention/second"):
        load(info)


def test_a_file_that_failed_leaves_nothing_for_another_file(folder, monkeypatch):
    (folder / "mine.py").write_text(SIMPLE + "\nraise RuntimeError('after the declaration')\n")
    with pytest.raises(RuntimeError, match="after the declaration"):
        load(get_kernel("attention", "my-own-way"))
    monkeypatch.setitem(catalog.READERS, ".txt", OneLiners())
    (folder / "more.txt").write_text("first second\n")
    first = load(get_kernel("attention", "first"))
    assert first.registered == {}
    assert load(get_kernel("attention", "second"), [first]).call() == "second"


def test_what_a_reader_declares_is_checked_like_any_kernel(folder, monkeypatch):
    monkeypatch.setitem(catalog.READERS, ".txt", OneLiners())
    (folder / "mine.txt").write_text("a,b\n")
    assert "mine.txt cannot be read: the name 'a,b' is not valid" in get_kernel("attention", "mine").error


@pytest.mark.parametrize("extension", catalog.READERS)
def test_a_file_of_any_kind_that_nobody_can_read_is_one_kernel_with_the_reason(folder, extension):
    (folder / f"broken{extension}").write_bytes(b"\xff\x00(")
    info = get_kernel("attention", "broken")
    assert info.error.startswith(f"broken{extension} cannot be read: ")
