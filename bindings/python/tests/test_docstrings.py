"""Whatever is public has a docstring."""

import inspect
import types

import pytest

import radixkv
import radixkv.sglang

DESCRIPTORS = (property, classmethod, staticmethod, types.GetSetDescriptorType, types.MemberDescriptorType)


def public(names):
    return {name: value for name, value in names.items() if not name.startswith("_")}


def members(kind):
    """The public methods and properties that the class itself defines."""
    own = public(vars(kind)).items()
    return {name: value for name, value in own if callable(value) or isinstance(value, DESCRIPTORS)}


EVERYTHING = {
    f"{module.__name__}.{name}": value
    for module in (radixkv, radixkv.sglang)
    for name, value in public(vars(module)).items()
    if callable(value)
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_classes_and_functions_have_docstrings(name):
    value = EVERYTHING[name]
    # A class's own: that of its base class does not count.
    assert (vars(value) if isinstance(value, type) else {"__doc__": value.__doc__}).get("__doc__")


@pytest.mark.parametrize("name", [name for name, value in EVERYTHING.items() if isinstance(value, type)])
def test_methods_and_properties_have_docstrings(name):
    kind = EVERYTHING[name]
    assert [member for member in members(kind) if not inspect.getdoc(getattr(kind, member))] == []
