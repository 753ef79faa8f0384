"""radixkv below SGLang's own tree: a HiCache storage backend of type `dynamic`.

`HICACHE.md` has the command line. Do not combine it with `--radix-cache-backend radixkv`, which
refuses HiCache.
"""

import logging
import threading
from pathlib import Path

import numpy as np
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult

import radixkv
from radixkv.sglang import _tested
from radixkv.sglang._pages import HASH_BYTES, Pieces, digest, text

_tested.check()
_log = logging.getLogger(__name__)
_KV = str(PoolName.KV)
_DONE = radixkv.DigestStore.DONE
# Several 8-bit floating-point types are stored as these.
_AMBIGUOUS = {"uint8", "int8"}
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# Fields of the extra configuration that SGLang itself reads, or uses to construct this class.
_SGLANGS = {"backend_name", "module_path", "class_name", "interface_v1", "allocator"}
# Maximum keys of one question to the tiers.
ASKED = 4096


class RadixKVStorage(HiCacheStorage):
    """Stores pages of SGLang's host pools in a region that all servers of the host share, and in
    tiers below it.

    SGLang constructs it as `RadixKVStorage(storage_config, kwargs)`; settings are in the extra
    configuration. Any thread may call any method.
    """

    def __init__(self, storage_config, *args, **kwargs):
        extra = dict(storage_config.extra_config or {})
        settings = {name: value for name, value in extra.items() if name not in _SGLANGS}
        self._config = storage_config
        self._copies_pages = not extra.get("interface_v1")
        self._name = settings.pop("region", "sglang")
        self._size = _bytes(settings.pop("size", "1GiB"), "size")
        self._sizes = {pool: _bytes(size, f"size of {pool!r}") for pool, size in settings.pop("pools", {}).items()}
        self._model = settings.pop("model", None) or storage_config.model_name or ""
        self._dtype = settings.pop("dtype", None)
        self._time_to_live = settings.pop("time_to_live", None)
        options = ("checksum", "threads", "max_in_flight")
        self._options = {name: settings.pop(name) for name in options if name in settings}
        self._asked = min(ASKED, self._options.get("max_in_flight", ASKED))
        self._tiers = settings.pop("tiers", [])
        if key_file := settings.pop("encryption_key_file", None):
            self._options["encryption_key"] = Path(key_file).read_bytes()
        if storage_config.should_split_heads:
            raise ValueError("pages whose heads are split (tp_lcm_size) are not supported: leave tp_lcm_size out")
        if storage_config.is_mla_model and storage_config.tp_size > 1:
            self._refuse_files()
        if settings:
            _log.warning("radixkv: unknown settings are ignored: %s", ", ".join(sorted(settings)))
        if self._copies_pages:
            _log.warning("radixkv: SGLang copies every page twice: set \"interface_v1\": 1 to avoid it")
        self.registered_pools = {}
        self._pieces, self._regions, self._stores = {}, {}, {}
        # Guards opening and closing.
        self._opening, self._is_closed = threading.Lock(), False

    # --- Pools

    def register_mem_pool_host(self, mem_pool_host, **unknown):
        super().register_mem_pool_host(mem_pool_host)
        self.register_mem_host_pool_v2(mem_pool_host, PoolName.KV)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name, **unknown):
        """Opens the region and namespaces of a pool. Raises ValueError for layouts that cannot be
        copied in place, and RegionError if a region or namespace has other properties."""
        name = str(host_pool_name)
        if self.registered_pools.get(name) is host_pool:
            return
        pieces = Pieces(name, host_pool)
        dtype = self._dtype_of(name, host_pool)
        if name == _KV and dtype in _AMBIGUOUS:
            raise ValueError(
                f"the host pool {name!r} holds {dtype}, which stands for several floating-point types: set "
                'the type of this model as "dtype" in the extra configuration, such as "float8_e4m3fn"'
            )
        # Other threads may open stores for values.
        with self._opening:
            self._forget(name)
            self._pieces[name] = pieces
            try:
                for size in dict.fromkeys(pieces.sizes):
                    self._open(name, size, pieces.key_bytes, dtype)
                if name == _KV and self._copies_pages:
                    self._open(name, sum(pieces.sizes), HASH_BYTES, dtype, whole=True)
            except Exception:
                self._forget(name)
                raise
            self.registered_pools[name] = host_pool

    # --- Pages in place

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None, **unknown):
        kv_pages = self.batch_exists(keys)
        hits, restorable = ({PoolName.KV: kv_pages} if kv_pages else {}), set(range(1, kv_pages + 1))
        for transfer in pool_transfers or []:
            if not restorable:
                break
            has = self._present(str(transfer.name), keys[:kv_pages])
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                ends = set(range(1, _leading(has) + 1))
            elif transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                window = max(1, len(transfer.keys or ()))
                ends = {end for end in range(1, kv_pages + 1) if has[max(0, end - window) : end].all()}
            else:
                raise ValueError(f"unknown hit policy {transfer.hit_policy} of pool {transfer.name}")
            if ends:
                hits[transfer.name] = max(ends)
            restorable &= ends
        return PoolTransferResult(max(restorable, default=0), hits, sorted(restorable))

    def batch_get_v2(self, transfers, extra_info=None, **unknown):
        return {transfer.name: self._transfer(transfer, is_load=True) for transfer in transfers}

    def batch_set_v2(self, transfers, extra_info=None, **unknown):
        return {transfer.name: self._transfer(transfer, is_load=False) for transfer in transfers}

    def batch_get_v1(self, keys, host_indices, extra_info=None, **unknown):
        return self._copy(_KV, keys, host_indices, is_load=True)

    def batch_set_v1(self, keys, host_indices, extra_info=None, **unknown):
        return self._copy(_KV, keys, host_indices, is_load=False)

    def batch_exists(self, keys, extra_info=None, **unknown):
        in_place = _leading(self._present(_KV, keys)) if _KV in self._pieces else 0
        digests = [digest(key) for key in keys]
        stores = [store for (pool, _, whole), store in list(self._stores.items()) if pool == _KV and whole]
        return max([in_place, *(_leading(self._found(store, digests)) for store in stores)])

    # --- Values that SGLang has copied

    def get(self, key, target_location=None, target_sizes=None, **unknown):
        return self.batch_get([key], [target_location], [target_sizes])[0]

    def batch_get(self, keys, target_locations=None, target_sizes=None, **unknown):
        """For each key, the filled tensor, or True for an address; None for a miss."""
        places = _places(keys, target_locations, target_sizes)
        got = self._copy_values(keys, places, is_load=True)
        return [_answer(place) if is_hit else None for place, is_hit in zip(places, got, strict=True)]

    def set(self, key, value=None, target_location=None, target_sizes=None, **unknown):
        place = value if value is not None else target_location
        return self.batch_set([key], [place], target_sizes=[target_sizes])

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None, **unknown):
        values = values if values is not None else target_locations
        return all(self._copy_values(keys, _places(keys, values, target_sizes), is_load=False))

    def exists(self, key, **unknown):
        return self.batch_exists([key]) == 1

    # --- The whole storage

    def clear(self):
        """Removes all blocks of this server's namespaces from the regions, not from the tiers."""
        for store in list(self._stores.values()):
            store.clear()
        return True

    def stats(self):
        """The statistics of each namespace, by its name."""
        return {store.namespace: store.stats() for store in list(self._stores.values())}

    def close(self):
        """Closes all stores and regions. Then nothing can be registered or copied."""
        with self._opening:
            self._is_closed = True
            for closed in [*self._stores.values(), *self._regions.values()]:
                closed.close()
            for cleared in (self._stores, self._regions, self._pieces, self.registered_pools):
                cleared.clear()

    # --- Stores

    def _forget(self, pool):
        """Closes the stores of a pool, which another pool replaces."""
        self._pieces.pop(pool, None)
        self.registered_pools.pop(pool, None)
        for place in [place for place in list(self._stores) if place[0] == pool]:
            self._stores.pop(place).close()

    def _open(self, pool, size, key_bytes, dtype, *, whole=False):
        """The store of blocks of this size; opens it if needed."""
        place = (pool, size, whole)
        if place in self._stores:
            return self._stores[place]
        config, pieces = self._config, self._pieces.get(pool)
        host_pool = pieces and pieces.host_pool
        rank = (config.tp_rank, config.tp_size) if self._is_split(pool, host_pool) else None
        self._stores[place] = radixkv.DigestStore(
            self._region(pool),
            text(f"{pool}{' whole' if whole else ''} {size}{self._shard(rank)}"),
            key_bytes=key_bytes,
            block_bytes=size,
            model=text(self._model),
            dtype=text(dtype),
            layout=text(_layout(host_pool, pieces)),
            rank=rank,
            block_tokens=pieces.page_tokens if pieces else 1,
            hash_scheme="sglang page hash, sha256",
            tiers=self._tiers,
            **self._options,
        )
        return self._stores[place]

    def _is_split(self, pool, host_pool):
        """Whether each rank has a part of the pool. With latent attention, every rank has the same
        keys and values, but its own part of states, and of draft models with heads."""
        from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

        has_parts = pool == str(PoolName.MAMBA) or isinstance(host_pool, MHATokenToKVPoolHost)
        return has_parts or not self._config.is_mla_model

    def _shard(self, rank):
        """The part of the model, for the namespace's name: each part has its own namespace."""
        config = self._config
        parts = [("tp", rank[0] if rank else 0, rank[1] if rank else 1), ("pp", config.pp_rank, config.pp_size),
                 ("cp", config.attn_cp_rank, config.attn_cp_size), ("dcp", config.dcp_rank, config.dcp_size)]
        return "".join(f" {kind}{rank}of{ranks}" for kind, rank, ranks in parts if ranks > 1)

    def _region(self, pool, block_bytes=0):
        """The region of a pool. By default, all have room for as many pages as the KV pool's."""
        if self._is_closed:
            raise radixkv.ReleasedError("the storage was closed")
        if pool in self._regions:
            return self._regions[pool]
        config, pieces = self._config, self._pieces.get(pool)
        page = sum(pieces.sizes) if pieces else block_bytes
        is_whole = pool == _KV and self._copies_pages
        block_bytes = page if is_whole or not pieces else max(pieces.sizes)
        size, name = self._size, self._name
        if pool != _KV:
            kv = self._pieces.get(_KV)
            share = self._size * page // sum(kv.sizes) if kv else self._size
            size, name = self._sizes.get(pool, min(share, self._size)), f"{name}-{pool}"
        if config.pp_size > 1:
            # Stages have different numbers of layers, and so different block sizes.
            size, name = size // config.pp_size, f"{name}-pp{config.pp_rank}"
        self._regions[pool] = radixkv.DigestRegion(name, block_bytes, size)
        return self._regions[pool]

    def _refuse_files(self):
        if any(tier.get("type") == "files" for tier in self._tiers):
            raise ValueError(
                "a tier of files is open in one process at a time, but the ranks of this model share one copy: use "
                '"redis" or "objects" below the region, or no tier'
            )

    # --- Copies

    def _present(self, pool, keys):
        """For each page, whether all its pieces are stored."""
        pieces = self._pieces.get(pool)
        if pieces is None or not keys:
            return np.zeros(len(keys), dtype=bool)
        has, digests = np.ones(len(keys), dtype=bool), [digest(key) for key in keys]
        for size in dict.fromkeys(pieces.sizes):
            found = self._found(self._stores[pool, size, False], pieces.keys(digests, size))
            has &= pieces.whole(found, size)
        return has

    def _found(self, store, keys):
        """For each key, whether the region or a tier has the block. A key that does not fit in
        flight beside the batches of other threads is not found."""
        found = _is(store.exists(keys), 1)
        absent = np.flatnonzero(~found)
        for start in range(0, len(absent), self._asked) if self._tiers else ():
            part = absent[start : start + self._asked]
            try:
                found[part] = _is(store.wait(store.lookup([keys[at] for at in part])), _DONE)
            except radixkv.FullError as full:
                _log.warning("radixkv: tiers were not asked: %s", full)
                break
        return found

    def _transfer(self, transfer, *, is_load):
        keys = transfer.keys or []
        try:
            return self._copy(str(transfer.name), keys, transfer.host_indices, is_load=is_load)
        except ValueError as error:
            _log.error("radixkv: pool %s was not copied: %s", transfer.name, error)
            return [False] * len(keys)

    def _copy(self, pool, keys, host_indices, *, is_load):
        """Copies pages between a host pool and its stores; returns for each if it succeeded."""
        pieces = self._pieces.get(pool)
        if pieces is None:
            raise ValueError(f"the host pool {pool!r} is not registered")
        digests = [digest(key) for key in keys]
        copied = np.ones(len(keys), dtype=bool)
        requests = [
            (self._stores[pool, size, False], pieces.keys(digests, size), addresses)
            for size, addresses in pieces.addresses(host_indices, len(keys)).items()
        ]
        for size, is_done in zip(dict.fromkeys(pieces.sizes), self._carry_out(requests, is_load), strict=True):
            copied &= pieces.whole(is_done, size)
        return copied.tolist()

    def _copy_values(self, keys, places, *, is_load):
        """Copies values of any sizes. Returns for each whether it was copied."""
        digests, copied, requests, indices = [digest(key) for key in keys], np.zeros(len(keys), dtype=bool), [], []
        for size in dict.fromkeys(size for _, size, _ in places):
            with self._opening:
                self._region(_KV, size)
                dtype = self._dtype_of(_KV, self.registered_pools.get(_KV))
                store = self._open(_KV, size, HASH_BYTES, dtype, whole=True)
            indices.append([index for index, place in enumerate(places) if place[1] == size])
            addresses = np.array([places[index][0] for index in indices[-1]], dtype=np.uint64)
            requests.append((store, [digests[index] for index in indices[-1]], addresses))
        for which, is_done in zip(indices, self._carry_out(requests, is_load), strict=True):
            copied[which] = is_done
        return copied.tolist()

    def _carry_out(self, requests, is_load):
        """Copies blocks, and returns for each request which blocks were copied. Waits for all
        batches even if one is refused, because their memory is in use until then."""
        batches, refused = [], None
        for store, keys, addresses in requests:
            try:
                batches.append((store, self._submit(store, keys, addresses, is_load)))
            except radixkv.Error as error:
                refused = error
                break
        answers = [_is(store.wait(batch), _DONE) for store, batch in batches]
        if refused is not None:
            _log.error("radixkv: pages were not copied: %s", refused)
            return [np.zeros(len(keys), dtype=bool) for _, keys, _ in requests]
        return answers

    def _submit(self, store, keys, addresses, is_load):
        copy = store.load_into if is_load else store.store_from
        return copy(keys, addresses, time_to_live=self._time_to_live)

    def _dtype_of(self, pool, host_pool):
        own = str(getattr(host_pool, "dtype", "")).removeprefix("torch.")
        return self._dtype or own if pool == _KV else own


def _layout(host_pool, pieces):
    if pieces is None:
        return "values"
    layers = f"{getattr(host_pool, 'start_layer', 0)}-{getattr(host_pool, 'end_layer', '')}"
    layout, kind = getattr(host_pool, "layout", ""), type(host_pool).__name__
    return f"{layout}, {len(pieces.sizes)} pieces, layers {layers}, {kind}"


def _is(outcomes, outcome):
    """For each block, whether it has this outcome."""
    return np.array(bytearray(outcomes), dtype=np.uint8) == outcome


def _leading(has):
    """The number of True before the first False."""
    return len(has) if has.all() else int(has.argmin())


def _places(keys, locations, sizes):
    """The address, bytes and tensor of each value, given as a tensor or an address and a size."""
    if locations is None or len(locations) != len(keys):
        raise ValueError(f"{len(locations or ())} values or locations given for {len(keys)} keys")
    sizes = sizes if isinstance(sizes, list | tuple) else [sizes] * len(keys)
    places = []
    for key, location, size in zip(keys, locations, sizes, strict=True):
        if isinstance(location, int) and size:
            places.append((location, int(size), None))
        elif hasattr(location, "data_ptr"):
            if not location.is_contiguous():
                raise ValueError(f"the tensor of key {key!r} is not contiguous")
            places.append((location.data_ptr(), location.numel() * location.element_size(), location))
        else:
            raise ValueError(f"key {key!r} has neither a tensor nor an address with a size")
    return places


def _answer(place):
    return True if place[2] is None else place[2]


def _bytes(given, name):
    """Converts an int, or a text such as "64GiB", to bytes."""
    digits = str(given).rstrip("KMGTiB ")
    unit = str(given)[len(digits) :].strip()
    if not digits.isdigit() or unit not in _UNITS:
        raise ValueError(f"{name} is {given!r}: must be a number of bytes, or a text such as \"64GiB\"")
    return int(digits) * _UNITS[unit]
