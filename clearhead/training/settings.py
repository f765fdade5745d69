"""Configs by path: `optim.lr`, `model.config.decoder.blocks.*.ffn.op.d_ff`. Imports no torch."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from clearhead.errors import ClearheadError, UsageError

T = TypeVar("T")


def plain(value: Any) -> Any:
    """A record as what JSON can say: mappings, lists and numbers. The name of a record goes with it, where
    its field may hold several kinds of record.
    """
    if is_dataclass(value) and not isinstance(value, type):
        hints = get_type_hints(type(value))
        return {f.name: _with_kind(getattr(value, f.name), hints[f.name]) for f in fields(value)}
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value


def _with_kind(value: Any, hint: Any) -> Any:
    said = plain(value)
    several = sum(is_dataclass(one) for one in get_args(hint)) > 1
    return {"record": type(value).__name__, **said} if several and is_dataclass(value) else said


def from_plain(hint: Any, value: Any) -> Any:
    """What `plain` was given, of this type, from what it gave.

    Raises:
        TypeError, ValueError: it is of no such record: another version of this package has written it.
    """
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        unknown = [name for name in value if name not in hints and name != "record"]
        if unknown:
            raise ValueError(f"{hint.__name__} has no field {unknown[0]!r}")
        return hint(**{name: from_plain(hints[name], one) for name, one in value.items() if name != "record"})
    kinds = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        if isinstance(value, dict):
            records = [one for one in kinds if is_dataclass(one)]
            name = value.get("record", getattr(records[0], "__name__", "") if len(records) == 1 else "")
            found = [one for one in records if getattr(one, "__name__", None) == name]
            if not found:
                raise ValueError(f"there is no record {name!r}")
            return from_plain(found[0], value)
        if isinstance(value, list):
            return from_plain(next(one for one in kinds if get_origin(one) is tuple), value)
        return value
    if get_origin(hint) is tuple:
        parts = (kinds[0],) * len(value) if kinds[-1] is Ellipsis else kinds
        return tuple(from_plain(part, one) for part, one in zip(parts, value, strict=True))
    return value


def leaves(value: Any, path: str = "", *, fold: bool = False) -> Iterator[tuple[str, Any]]:
    """Every path of a record and the value there. `fold`: of equal parts in a row, one stands for all, as `*`."""
    if is_dataclass(value) and fields(value):
        parts = [(f.name, getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, tuple) and any(map(is_dataclass, value)):
        alike = fold and len(value) > 1 and all(one == value[0] for one in value)
        parts = [("*", value[0])] if alike else [(str(i), one) for i, one in enumerate(value)]
    else:
        yield path, value
        return
    for name, part in parts:
        yield from leaves(part, f"{path}.{name}" if path else name, fold=fold)


def shown(value: Any) -> str:
    """A value as `--set` takes it."""
    if is_dataclass(value):
        return type(value).__name__
    return value if isinstance(value, str) else json.dumps(plain(value))


def show(config: Any) -> str:
    """Every field of a config, a line each, as `--set` takes it."""
    return "\n".join(f"{path}={shown(value)}" for path, value in leaves(config, fold=True))


def change(config: T, settings: tuple[str, ...]) -> T:
    """The config with `PATH=VALUE` of each setting in place.

    Raises:
        UsageError: there is no such path (the message has the nearest), or the value is of another kind.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: give PATH=VALUE, as in optim.lr=3e-4")
        config = _at(config, path.strip(), path.strip().split("."), partial(_read, text), config)
    return config


def _at(part: Any, path: str, names: list[str], new: Callable[[Any], Any], whole: Any) -> Any:
    """`part` with the value at `names` in it replaced."""
    name, rest = names[0], names[1:]
    if isinstance(part, tuple) and any(map(is_dataclass, part)):
        which = range(len(part)) if name == "*" else [int(name)] if name.isdigit() and int(name) < len(part) else []
        if not which or not rest:
            raise _unknown(path, whole)
        return tuple(_at(one, path, rest, new, whole) if i in which else one for i, one in enumerate(part))
    if not is_dataclass(part) or isinstance(part, type) or name not in {f.name for f in fields(part)}:
        raise _unknown(path, whole)
    if rest:
        inner = getattr(part, name)
        # A part that may be left out comes to be when something of it is set.
        inner = _unsaid(get_type_hints(type(part))[name]) if inner is None else inner
        value = _at(inner, path, rest, new, whole)
    else:
        if is_dataclass(getattr(part, name)):
            raise UsageError(f"{path} is made of parts; set one of them, such as {_parts(whole, path)[0]}")
        try:
            value = new(get_type_hints(type(part))[name])
        except ValueError as problem:
            raise UsageError(f"{path} can't be {problem}") from None
    return replace(part, **{name: value})


def _unsaid(hint: Any) -> Any:
    """The record that a field may hold, with nothing said of it; None where it is none."""
    kinds = [one for one in get_args(hint) if is_dataclass(one)]
    if len(kinds) != 1:
        return None
    kind: Any = kinds[0]
    return kind(**{f.name: "" for f in fields(kind) if _must_be_said(f)})


def _must_be_said(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def unsaid(config: Any, path: str = "") -> list[str]:
    """The paths of texts that have no default and that nobody gave."""
    found = []
    for f in fields(config):
        value, at = getattr(config, f.name), f"{path}.{f.name}" if path else f.name
        if is_dataclass(value):
            found += unsaid(value, at)
        elif value == "" and _must_be_said(f):
            found.append(at)
    return found


def _parts(config: Any, path: str) -> list[str]:
    return [one for one, _ in leaves(config, fold=True) if one.startswith(path + ".")] or [path]


def _unknown(path: str, config: Any) -> UsageError:
    known = [one for one, _ in leaves(config, fold=True)]
    near = difflib.get_close_matches(path, known, n=3, cutoff=0.0)
    # A bare last word is the likeliest slip: `lr` for `optim.lr`.
    near = [one for one in known if one.rsplit(".", 1)[-1] == path.rsplit(".", 1)[-1]][:3] or near
    return UsageError(f"there is no setting {path!r}; the nearest are {', '.join(near)}")


def _read(text: str, hint: Any) -> Any:
    """The value that a text gives for a field of this type."""
    try:
        value = json.loads({"None": "null", "none": "null", "True": "true", "False": "false"}.get(text, text))
    except ValueError:
        value = text
    for one in (value, text):
        found = _fitting(one, hint)
        if found is not _NOTHING:
            return found
    raise ValueError(f"{text!r}; {_wanted(hint)} is expected")


_NOTHING = object()


def _fitting(value: Any, hint: Any) -> Any:
    """`value` as the type takes it, or _NOTHING."""
    origin = get_origin(hint)
    if origin is Literal:
        return value if value in get_args(hint) else _NOTHING
    if origin in (Union, types.UnionType):
        return next((v for v in (_fitting(value, one) for one in get_args(hint)) if v is not _NOTHING), _NOTHING)
    if origin is tuple and isinstance(value, list):
        kinds = get_args(hint)
        kinds = (kinds[0],) * len(value) if kinds[-1] is Ellipsis else kinds
        found = tuple(_fitting(v, kind) for v, kind in zip(value, kinds, strict=False))
        return found if len(kinds) == len(value) and _NOTHING not in found else _NOTHING
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, dict):
        try:
            return from_plain(hint, value)
        except (TypeError, ValueError):
            return _NOTHING
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint):
        return _NOTHING if isinstance(value, bool) and hint is not bool else value
    return _NOTHING


def _wanted(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return " or ".join(map(str, get_args(hint)))
    if origin in (Union, types.UnionType):
        return " or ".join(map(_wanted, get_args(hint)))
    if origin is tuple:
        return f"a list such as [{', '.join('...' if one is Ellipsis else _wanted(one) for one in get_args(hint))}]"
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", types.NoneType: "null"}
    return words.get(hint, str(getattr(hint, "__name__", hint)))


def differences(mine: Any, saved: Any, path: str = "") -> list[str]:
    """Where two plain values differ, in words: "optim.lr is 0.001, and was 0.002"."""
    if isinstance(mine, dict) and isinstance(saved, dict):
        names = [*mine, *(name for name in saved if name not in mine)]
        parts = [(name, mine.get(name), saved.get(name)) for name in names]
    elif isinstance(mine, list) and isinstance(saved, list) and len(mine) == len(saved) and mine != saved:
        parts = [(str(i), a, b) for i, (a, b) in enumerate(zip(mine, saved, strict=True))]
    else:
        return [] if mine == saved else [f"{path} is {_short(mine)}, and was {_short(saved)}"]
    return [words for name, a, b in parts for words in differences(a, b, f"{path}.{name}" if path else name)]


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def refuse(mine: Any, saved: Any, what: str, path: str = "") -> None:
    """Refuse to go on where two plain values differ, by name."""
    found = differences(mine, saved, path)
    if found:
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise ClearheadError(f"{what}: {'; '.join(found[:3])}{more}")
