"""The import hook: makes thin modules under foreign names whose attributes are those of our modules."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


class Alias(ModuleType):
    """A module whose attributes are those of `targets`; what a script assigns to it stays here.

    Nothing is copied, so our names that load on first use still do.
    """

    _targets: tuple[str, ...] = ()
    _children: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> Any:
        if name in self._children:
            try:
                return importlib.import_module(f"{self.__name__}.{name}")
            except ImportError as error:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}: {error}") from error
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(name)  # the machinery of imports asks for such names
        for target in self._targets:
            try:
                return getattr(importlib.import_module(target), name)
            except AttributeError:
                continue
        stands_for = " and ".join(self._targets) or "smddp_tf"
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} (it is {stands_for} here)")

    def __dir__(self) -> list[str]:
        theirs = (dir(importlib.import_module(target)) for target in self._targets)
        return sorted({*self.__dict__, *self._children}.union(*theirs))


class CallableAlias(Alias):
    """`horovod.run` is a module to some scripts and a function to others."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__getattr__(self.__name__.rpartition(".")[2])(*args, **kwargs)


@dataclass(eq=False)
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what the table lists, before the path is searched: an installed package of the same name is not seen.

    Attributes:
        modules: for each module that exists, those of this package.
        absent: modules that a script may import and that are not available here, each with advice.
        versions: the `__version__` of some modules.
        distributions: names and versions for `importlib.metadata`.
        callables: modules that can be called like the function of the same name in them.
        aliased: the top-level packages of `modules`.
    """

    modules: Mapping[str, tuple[str, ...]]
    absent: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    distributions: Mapping[str, str] = field(default_factory=dict)
    callables: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.aliased = frozenset(name.partition(".")[0] for name in self.modules)

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module of the table, None for others.

        Raises:
            ModuleNotFoundError: The module is one of those that are not available. Says what to do.
        """
        if fullname.partition(".")[0] not in self.aliased:
            return None
        for name, advice in self.absent.items():
            if fullname == name or fullname.startswith(f"{name}."):
                raise ModuleNotFoundError(
                    f"smddp_tf stands for {name.partition('.')[0]} here, and has no {name}: {advice}.", name=fullname
                )
        if fullname not in self.modules or not all(map(_exists, self.modules[fullname])):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=bool(self._children_of(fullname)))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        kind = CallableAlias if spec.name in self.callables else Alias
        return kind(spec.name, f"Stands for {', '.join(self.modules[spec.name]) or 'nothing but its parts'}.")

    def exec_module(self, module: ModuleType) -> None:
        assert isinstance(module, Alias)
        name = module.__name__
        targets = self.modules[name]
        module._targets = targets
        module._children = self._children_of(name)
        # The others are imported when something is looked up there.
        module.__file__ = importlib.import_module(targets[0] if targets else "smddp_tf").__file__
        if name in self.versions:
            vars(module)["__version__"] = self.versions[name]

    def get_code(self, fullname: str) -> Any:
        """For `python -m`: the code of our module, which then runs as the program."""
        targets = self.modules[fullname]
        spec = importlib.util.find_spec(targets[0]) if targets else None
        loader: Any = None if spec is None else spec.loader
        return None if loader is None else loader.get_code(targets[0])

    def find_distributions(self, context: object = None) -> Iterator[importlib.metadata.Distribution]:
        """For `importlib.metadata.version("horovod")`."""
        name: Any = getattr(context, "name", None)
        if name in self.distributions:
            yield _Distribution(name, self.distributions[name])

    def _children_of(self, fullname: str) -> frozenset[str]:
        prefix = f"{fullname}."
        names = (name[len(prefix) :] for name in self.modules if name.startswith(prefix))
        return frozenset(name for name in names if "." not in name)


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: object) -> Any:
        raise FileNotFoundError(f"{path}: this package is replaced by smddp_tf and has no files.")


def _exists(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None
