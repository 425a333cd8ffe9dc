"""Configs as YAML: the files in kernels/configs/, a file of one's own, or a text. An error says the line and the reason."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kernels.catalog import get_kernel, get_operation, kernels
from kernels.protocol import Protocol
from kernels.workload import Config, sentence

CONFIGS_DIR = Path(__file__).parent / "configs"
EVERY_KERNEL = "every-kernel"
"""The name of a config that is no file: see every_kernel."""
EVERY_KERNEL_BYTES = 2**28
"""Inputs and outputs of a workload of this config: `eager` attention at S=4096 takes a minute to check."""


class ConfigError(ValueError):
    """A config is not usable. The message says where and why."""


def load_config(name_or_path: str) -> Config:
    """A config by name (kernels/configs/NAME.yaml) or by path."""
    if name_or_path == EVERY_KERNEL:
        return every_kernel()
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = CONFIGS_DIR / f"{name_or_path}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in CONFIGS_DIR.glob("*.yaml")))
        raise ConfigError(f"there is no config '{name_or_path}'; there are: {known}; or give the path of a .yaml file")
    try:
        return read_config(path.read_text(), path.stem)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name} is not YAML: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error}") from None


def configs() -> list[Config]:
    return [load_config(path.stem) for path in sorted(CONFIGS_DIR.glob("*.yaml"))]


def every_kernel() -> Config:
    """Checks every kernel on the smallest workload that each config has of its operation, without timing.

    A smallest workload above EVERY_KERNEL_BYTES is left out.
    """
    parts = [config.part(operation) for config in configs() for operation in config.operations]
    smallest = [min(part.workloads, key=lambda workload: workload.problem.tensor_bytes) for part in parts]
    small = {one.key: one for one in smallest if one.problem.tensor_bytes <= EVERY_KERNEL_BYTES}
    ordered = sorted(small.values(), key=lambda workload: workload.operation)
    return Config(
        name=EVERY_KERNEL,
        title="Every kernel on each config's smallest workload",
        kernels=[info.full_name for info in kernels()],
        protocol=Protocol(verify_only=True),
        workloads=ordered,
    )


def read_config(text: str, name: str) -> Config:
    """A config from YAML. name: its name, if the text has none.

    Raises ConfigError: "line 7: workloads.0.batch: must be greater than or equal to 1".
    """
    try:
        values = _values(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{f'line {mark.line + 1}: ' if mark else ''}not YAML: {what}") from None
    except RecursionError:
        raise ConfigError("lists and mappings are nested too deeply") from None
    except ValueError as error:  # the 45th of a month
        raise ConfigError(f"not YAML: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ConfigError("not a mapping of name, operation, kernels, workloads")
    try:
        return Config(**{"name": name} | values)
    except ValidationError as error:
        where = error.errors()[0]["loc"]
        if where == ("name",) and "name" not in values:
            raise ConfigError(
                f"its file is named {name}; a config's name has small letters, digits and ._- only"
            ) from None
        line = _line(text, _origin(values, where))
        raise ConfigError(f"line {line}: {sentence(error)}") from None


def as_yaml(config: Config) -> str:
    """The text of a config, for people to edit: a workload a line, without what goes without saying."""
    body: dict[str, Any] = {name: value for name in ("title", "source") if (value := getattr(config, name))}
    if how := config.protocol.model_dump(mode="json", exclude_defaults=True):
        body["protocol"] = how
    if config.operation:
        body |= {"operation": config.operation} | _part(config)
    else:
        body["operations"] = {name: _part(config.part(name)) for name in config.operations}
    return yaml.safe_dump(body, sort_keys=False, default_flow_style=None, width=1000, allow_unicode=True)


def _part(config: Config) -> dict[str, Any]:
    """Kernels and workloads of one operation."""
    default = get_operation(config.operation).baseline
    other = {} if config.baseline == default else {"baseline": config.baseline}
    workloads = [{"dtype": w.dtype} | w.brief_sizes for w in config.workloads]
    named = [name for name in config.kernels if name != default] or config.kernels
    return {"kernels": named} | other | {"workloads": workloads}


@lru_cache(maxsize=128)
def _values(text: str) -> Any:
    """The values of a text, parsed once for each content."""
    return yaml.load(text, _Reader)


class _Reader(yaml.SafeLoader):
    """YAML whose texts may have characters as JSON escapes them: two halves, \\ud83d\\ude80."""

    def text(self, node: yaml.ScalarNode) -> str:
        try:
            return str(self.construct_scalar(node)).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise ValueError("unpaired surrogate: \\ud800 to \\udfff must come in pairs") from None


_Reader.add_constructor("tag:yaml.org,2002:str", _Reader.text)


def _origin(values: dict[str, Any], loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path in the text of a path in the config, where each combination of a workload's lists is one workload."""
    if loc[:1] != ("workloads",) or len(loc) < 2 or not isinstance(loc[1], int):
        return ("operations", *loc[1:]) if "operations" in values and loc[:1] == ("kernels",) else loc
    parts = values.get("operations")
    lists: list[tuple[tuple[int | str, ...], list[Any]]]
    if isinstance(parts, dict):
        lists = [(("operations", name, "workloads"), part["workloads"]) for name, part in parts.items()]
    else:
        lists = [(("workloads",), values["workloads"])]
    origins = [
        (*path, number) for path, items in lists for number, item in enumerate(items) for _ in range(_count(item))
    ]
    return (*origins[loc[1]], *loc[2:]) if loc[1] < len(origins) else loc


def _count(item: Any) -> int:
    """Workloads that an item of a list of workloads makes."""
    if not isinstance(item, dict) or "sizes" in item:
        return 1
    return math.prod(len(value) for value in item.values() if isinstance(value, list))


def _line(text: str, path: tuple[int | str, ...]) -> int:
    """The line of a path in a text, counted from 1: of the nearest part of it that is there."""
    node = yaml.compose(text)
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = next((value for key, value in node.value if key.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            found = node.value[step] if step < len(node.value) else None
        else:
            found = None
        if found is None:
            break
        node = found
    return 1 if node is None else node.start_mark.line + 1


def check_kernels(config: Config) -> None:
    """Raises UnknownName if no file declares a kernel of the config."""
    for operation in config.operations:
        known = {info.name for info in kernels(operation)}
        for name in config.kernels_of(operation):
            if name not in known:
                get_kernel(operation, name)
