"""A stand-in for torch: tensors over numpy arrays, as far as a prefix cache and SGLang's own trees
use them."""

import types

import numpy as np


class device:
    def __init__(self, kind="cpu", index=None):
        self.type, self.index = getattr(kind, "type", kind), index

    def __eq__(self, other):
        return self.type == getattr(other, "type", other)

    def __hash__(self):
        return hash(self.type)


def _array(value):
    return value._values if isinstance(value, Tensor) else value


def _key(key):
    return tuple(map(_array, key)) if isinstance(key, tuple) else _array(key)


class Tensor:
    device = device("cpu")

    def __init__(self, values):
        self._values = values

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype.type)
    is_cuda = False

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return map(Tensor, self._values)

    def __getitem__(self, key):
        return Tensor(self._values[_key(key)])

    def __setitem__(self, key, value):
        self._values[_key(key)] = _array(value)

    def __array__(self, dtype=None, copy=None):
        return self._values

    def __eq__(self, other):
        return Tensor(self._values == _array(other))

    def __int__(self):
        return int(self._values)

    def __mul__(self, other):
        return Tensor(self._values * _array(other))

    def __add__(self, other):
        return Tensor(self._values + _array(other))

    def __floordiv__(self, other):
        return Tensor(self._values // _array(other))

    def __mod__(self, other):
        return Tensor(self._values % _array(other))

    __hash__ = None

    def to(self, target=None, *, dtype=None, copy=False, device=None, non_blocking=False):
        dtype = target if isinstance(target, type) and issubclass(target, np.generic) else dtype
        return Tensor(self._values.astype(dtype or self._values.dtype, copy=copy))

    def clone(self):
        return Tensor(self._values.copy())

    def numel(self):
        return self._values.size

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    def reshape(self, *shape):
        return Tensor(self._values.reshape(*shape))

    def view(self, *shape):
        is_dtype = isinstance(shape[0], type) and issubclass(shape[0], np.generic)
        return Tensor(self._values.view(shape[0]) if is_dtype else self._values.reshape(*shape))

    def flatten(self):
        return Tensor(self._values.flatten())

    def data_ptr(self):
        return self._values.ctypes.data

    def element_size(self):
        return self._values.itemsize

    def is_contiguous(self):
        return self._values.flags.c_contiguous

    def __index__(self):
        return int(self._values)

    def item(self):
        return self._values.item()

    def tolist(self):
        return self._values.tolist()

    def numpy(self):
        return self._values

    def cpu(self):
        return self

    detach = contiguous = cpu


int8, int32, int64, bool, uint8 = np.int8, np.int32, np.int64, np.bool_, np.uint8
float32 = np.float32
__version__ = "0.0"


def tensor(values, dtype=None, device=None):
    return Tensor(np.array(values, dtype=dtype))


def empty(shape, dtype=None, device=None, **rest):
    return Tensor(np.zeros(shape, dtype=dtype))


zeros = empty


def rand(*shape, dtype=None):
    return Tensor(np.random.default_rng(0).random(shape).astype(dtype))


def full(shape, value, dtype=None, device=None):
    return Tensor(np.full(shape, value, dtype=dtype))


def arange(*bounds, dtype=None, device=None):
    return Tensor(np.arange(*bounds, dtype=dtype))


def from_numpy(values):
    return Tensor(values)


def frombuffer(buffer, *, dtype):
    return Tensor(np.frombuffer(buffer, dtype=dtype))


def as_strided(tensor, size, stride, storage_offset=0):
    flat = _array(tensor).reshape(-1)[storage_offset:]
    return Tensor(np.lib.stride_tricks.as_strided(flat, size, [step * flat.itemsize for step in stride]))


def cat(tensors, dim=0):
    return Tensor(np.concatenate([_array(part) for part in tensors], axis=dim))


concat = cat


def equal(one, other):
    return np.array_equal(_array(one), _array(other))


iinfo = np.iinfo


def __getattr__(name):
    """Names that are only mentioned: in annotations, and for devices that are not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    from loader import Nothing

    return Nothing()


cuda = types.SimpleNamespace(is_available=lambda: False)
