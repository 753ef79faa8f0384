#ifndef RADIXKV_H
#define RADIXKV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The lookups of a namespace compare single tokens.
#define RADIXKV_KEYS_TOKENS 0

// The lookups of a namespace compare pairs of neighbouring tokens, for draft models whose keys and values at a token also
// depend on the next one.
#define RADIXKV_KEYS_BIGRAMS 1

// In a quota: no limit.
#define RADIXKV_NO_LIMIT UINT64_MAX

// What a function returns. `radixkv_last_error` has the text and the numbers.
//
// If it is not `RADIXKV_STATUS_OK`, nothing has changed, except after `RADIXKV_STATUS_PANICKED`; handles that the function
// would have made are NULL.
typedef enum {
    // Done.
    RADIXKV_STATUS_OK = 0,
    // An argument that must be given is NULL.
    RADIXKV_STATUS_NULL_POINTER = 1,
    // An argument is out of its range: the text says which, and what is accepted.
    RADIXKV_STATUS_INVALID_ARGUMENT = 2,
    // A buffer has room for fewer elements than the call may write: `requested` of `available`.
    RADIXKV_STATUS_BUFFER_TOO_SHORT = 3,
    // A handle belongs to another cache.
    RADIXKV_STATUS_OTHER_CACHE = 4,
    // Another thread is inside a call with the same handle, which only one thread may use at a time.
    RADIXKV_STATUS_HANDLE_BUSY = 5,
    // The tokens are shorter than the sequence of their lease: pass the whole sequence.
    RADIXKV_STATUS_SEQUENCE_TOO_SHORT = 6,
    // Different namespaces pay for the two reservations.
    RADIXKV_STATUS_OTHER_PAYER = 7,
    // Leases and reservations hold too many blocks: retry when some are released.
    RADIXKV_STATUS_EXHAUSTED = 20,
    // The namespace would have more blocks in leases and reservations than its quota allows.
    RADIXKV_STATUS_OVER_QUOTA = 21,
    // The time passed before enough blocks were available.
    RADIXKV_STATUS_TIMED_OUT = 22,
    // More blocks than the cache has: it never fits.
    RADIXKV_STATUS_TOO_LARGE = 23,
    // The engine owns the blocks (`radixkv_builder_external`): adopt them instead of reserving.
    RADIXKV_STATUS_EXTERNAL_POOL = 24,
    // The cache owns the blocks: build it with `radixkv_builder_external`.
    RADIXKV_STATUS_NOT_EXTERNAL = 25,
    // The cache already has one of the blocks, or it is twice in the list: its id is `requested`.
    RADIXKV_STATUS_BLOCK_HELD = 26,
    // A block id is not below the capacity: the id is `requested`.
    RADIXKV_STATUS_BLOCK_OUT_OF_RANGE = 27,
    // The reservation holds another number of blocks than the sequence has whole blocks beyond the lease.
    RADIXKV_STATUS_BLOCK_COUNT = 40,
    // The sequence is longer than 2^31 - 1 tokens.
    RADIXKV_STATUS_SEQUENCE_TOO_LONG = 41,
    // A fork also holds a block of the reservation: `radixkv_reservation_make_unique` first.
    RADIXKV_STATUS_SHARED_BLOCK = 42,
    // The lease protects nothing, because its namespace was removed or cleared: match again.
    RADIXKV_STATUS_NAMESPACE_REMOVED = 43,
    // Blocks of the lease were invalidated: match again, and compute what is missing.
    RADIXKV_STATUS_INVALIDATED = 44,
    // Too many sequences branch off after the same token: retry when some leases are released.
    RADIXKV_STATUS_TOO_MANY_BRANCHES = 45,
    // The prefix holds 2^28 leases: retry when some are released.
    RADIXKV_STATUS_TOO_MANY_LEASES = 46,
    // The namespace has leases or reservations, and was left as it is.
    RADIXKV_STATUS_NAMESPACE_IN_USE = 47,
    // The cache was not built to grow so far.
    RADIXKV_STATUS_CANNOT_GROW = 60,
    // The cache has no background evictor.
    RADIXKV_STATUS_NOT_BACKGROUND = 61,
    // The system could not start the evictor's thread.
    RADIXKV_STATUS_NO_THREAD = 62,
    // An invariant of the cache is broken: a bug of this library (`radixkv_cache_validate`).
    RADIXKV_STATUS_VIOLATION = 63,
    // Another failure: the text says which.
    RADIXKV_STATUS_OTHER = 98,
    // A bug of this library: the text is the panic's. Release the handles and do not go on.
    RADIXKV_STATUS_PANICKED = 99,
} radixkv_status;

// Which change an event tells of.
typedef enum {
    // Blocks of one sequence were cached.
    RADIXKV_EVENT_KIND_STORED = 0,
    // Blocks at the end of a sequence were evicted: to make room, or by `radixkv_cache_evict`.
    RADIXKV_EVENT_KIND_REMOVED_FOR_CAPACITY = 1,
    // The same, because their namespace exceeded its quota.
    RADIXKV_EVENT_KIND_REMOVED_FOR_QUOTA = 2,
    // The same, because they were not used for too long.
    RADIXKV_EVENT_KIND_REMOVED_FOR_AGE = 3,
    // The same, because they were invalidated.
    RADIXKV_EVENT_KIND_REMOVED_AS_INVALID = 4,
    // The same, for a reason that this version has no name for.
    RADIXKV_EVENT_KIND_REMOVED = 5,
    // A namespace was cleared or removed: all blocks stored in it before are gone.
    RADIXKV_EVENT_KIND_CLEARED = 6,
    // Another change that this version has no name for.
    RADIXKV_EVENT_KIND_UNKNOWN = 7,
} radixkv_event_kind;

// Consecutive events, in the order in which they came.
typedef struct radixkv_batch radixkv_batch;

// The settings of a cache that is to be built.
typedef struct radixkv_builder radixkv_builder;

// A cache. It lives until every handle made from it is freed, in any order. The last one frees the index, which takes about
// 3 s for a million inserted sequences.
typedef struct radixkv_cache radixkv_cache;

// A copy that a sequence must make before it writes to a block that a fork also holds. The source keeps its content until
// this is freed.
typedef struct radixkv_copy radixkv_copy;

// A promise: while it lives, the blocks of its prefix are not evicted, rewritten or handed out.
typedef struct radixkv_lease radixkv_lease;

// Sequences that share nothing with those of other namespaces: an adapter, a tenant, a model version.
typedef struct radixkv_namespace radixkv_namespace;

// A block whose first tokens agree with a sequence beyond its match. The block stays in place until this is freed.
typedef struct radixkv_partial_hit radixkv_partial_hit;

// Blocks that their owner fills and then inserts. Freeing it gives back those that it still holds.
typedef struct radixkv_reservation radixkv_reservation;

// One thread's access to a cache. A thread that serves many requests keeps one; it may go from thread to thread, but only one
// uses it at a time.
typedef struct radixkv_session radixkv_session;

// A listener's end of a bounded channel of batches. It does not keep the cache alive.
typedef struct radixkv_subscription radixkv_subscription;

// A prefix without a promise: `radixkv_session_upgrade` says whether it is still cached. It keeps no block and no cache.
typedef struct radixkv_weak_lease radixkv_weak_lease;

// What the last failed call of this thread found.
typedef struct {
    // Its status; `RADIXKV_STATUS_OK` if no call of this thread has failed yet.
    radixkv_status status;
    // What was asked for: blocks, tokens or elements. 0 where it means nothing, here and below.
    size_t requested;
    // What there was: free or evictable blocks, pinned blocks of the namespace, elements of the buffer.
    size_t available;
    // The limit: of the namespace, or the cache's capacity.
    size_t limit;
    // One line of text. Valid until this thread calls `radixkv_last_error` again.
    const char *text;
} radixkv_error;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_builder **Output_____Builder;

// Where a function writes a handle that it makes.
typedef Output_____Builder NewHandle_Builder;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_cache **Output_____Cache;

// Where a function writes a handle that it makes.
typedef Output_____Cache NewHandle_Cache;

// Where a function writes a result: a pointer to what need not be initialized.
typedef size_t *Output_usize;

// Where a function writes a result: a pointer to what need not be initialized.
typedef bool *Output_bool;

// Where a function writes a result: a pointer to what need not be initialized.
typedef uint32_t *Output_u32;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_namespace **Output_____Namespace;

// Where a function writes a handle that it makes.
typedef Output_____Namespace NewHandle_Namespace;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_session **Output_____Session;

// Where a function writes a handle that it makes.
typedef Output_____Session NewHandle_Session;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_lease **Output_____Lease;

// Where a function writes a handle that it makes.
typedef Output_____Lease NewHandle_Lease;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_reservation **Output_____Reservation;

// Where a function writes a handle that it makes.
typedef Output_____Reservation NewHandle_Reservation;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_partial_hit **Output_____PartialHit;

// Where a function writes a handle that it makes.
typedef Output_____PartialHit NewHandle_PartialHit;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_weak_lease **Output_____WeakLease;

// Where a function writes a handle that it makes.
typedef Output_____WeakLease NewHandle_WeakLease;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_copy **Output_____Copy;

// Where a function writes a handle that it makes.
typedef Output_____Copy NewHandle_Copy;

// The statistics of a cache. `free + reserved + evictable + protected` blocks are the capacity. Counts go from when the cache
// was built. A later version of the library may add fields at the end.
typedef struct {
    // Blocks that the cache manages.
    uint64_t capacity_blocks;
    // Blocks that hold nothing.
    uint64_t free_blocks;
    // Blocks that are being filled: in reservations, or inserted since the last settling.
    uint64_t reserved_blocks;
    // Cached blocks that no lease protects.
    uint64_t evictable_blocks;
    // Cached blocks that a lease protects, directly or through a longer prefix.
    uint64_t protected_blocks;
    // Blocks cached.
    uint64_t inserted_blocks;
    // Blocks evicted.
    uint64_t evicted_blocks;
    // Of those, blocks of a namespace that exceeded its quota.
    uint64_t evicted_for_quota_blocks;
    // Blocks removed because they were not used for too long.
    uint64_t aged_blocks;
    // Blocks of namespaces that were cleared or removed, freed by now.
    uint64_t cleared_blocks;
    // Blocks that were invalidated, freed by now.
    uint64_t invalidated_blocks;
    // Requests that wait for blocks at this moment.
    uint64_t waiting_requests;
    // Bytes of index memory.
    uint64_t index_bytes;
    // Of those, garbage that is freed once no thread can access it.
    uint64_t garbage_bytes;
    // Bytes that the index has from the system for its small nodes.
    uint64_t slab_bytes;
    // Segments of sequences in the index.
    uint64_t runs;
    // Places on them that hold leases, branches and statistics.
    uint64_t points;
    // Lookups that counted as a use.
    uint64_t lookups;
    // Tokens that were looked up.
    uint64_t query_tokens;
    // Of those, tokens that were found.
    uint64_t hit_tokens;
    // Tokens that a resume found beyond a lease whose lookup was counted already.
    uint64_t resumed_tokens;
    // Tokens of whole blocks that were missed because the first of them was cached once and is gone.
    uint64_t missed_evicted_tokens;
    // The same: a cached block agrees only with its first tokens.
    uint64_t missed_diverged_tokens;
    // The same: it was seen only in another namespace.
    uint64_t missed_elsewhere_tokens;
    // The same: it had not been seen.
    uint64_t missed_new_tokens;
    // Tokens of partial hits.
    uint64_t partial_tokens;
    // Inserts that were not refused.
    uint64_t inserts;
    // Blocks that inserts gave back because their tokens were cached already.
    uint64_t duplicate_blocks;
    // Reservations that were granted, and lists of blocks that were adopted.
    uint64_t reservations;
    // Blocks of those.
    uint64_t taken_blocks;
    // Reservations that were refused, or timed out, for want of blocks.
    uint64_t exhausted_refusals;
    // Requests for blocks, and inserts, that were refused because of a quota.
    uint64_t over_quota_refusals;
    // Requests that waited.
    uint64_t waits;
    // Nanoseconds that they waited, together.
    uint64_t waited_nanos;
    // Prefixes that were retained, each time.
    uint64_t retentions;
    // Blocks of those.
    uint64_t retained_blocks;
    // 1 if every change made before the call is in these numbers; 0 if another thread was evicting.
    uint64_t is_settled;
} radixkv_stats;

// The statistics of a namespace. A later version of the library may add fields at the end.
typedef struct {
    // Blocks cached, as of the last settling.
    uint64_t cached_blocks;
    // Of those, blocks that a lease protects.
    uint64_t protected_blocks;
    // Blocks of reservations that it pays for.
    uint64_t reserved_blocks;
    // 1 if the numbers of lookups below are its own; 0 if there were too many namespaces, and they are 0.
    uint64_t has_lookups;
    // Lookups that counted as a use.
    uint64_t lookups;
    // Tokens that were looked up.
    uint64_t query_tokens;
    // Of those, tokens that were found.
    uint64_t hit_tokens;
    // Tokens that a resume found beyond a lease whose lookup was counted already.
    uint64_t resumed_tokens;
    // Tokens of whole blocks that were missed because the first of them was cached once and is gone.
    uint64_t missed_evicted_tokens;
    // The same: a cached block agrees only with its first tokens.
    uint64_t missed_diverged_tokens;
    // The same: it was seen only in another namespace.
    uint64_t missed_elsewhere_tokens;
    // The same: it had not been seen.
    uint64_t missed_new_tokens;
} radixkv_namespace_stats;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_subscription **Output_____Subscription;

// Where a function writes a handle that it makes.
typedef Output_____Subscription NewHandle_Subscription;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_batch **Output_____Batch;

// Where a function writes a handle that it makes.
typedef Output_____Batch NewHandle_Batch;

// Where a function writes a result: a pointer to what need not be initialized.
typedef uint64_t *Output_u64;

// A text of `len` bytes in UTF-8, without a zero at its end.
typedef struct {
    // Its bytes.
    const char *data;
    // Their number.
    size_t len;
} radixkv_text;

// An event. Its pointers are valid until its batch is freed.
typedef struct {
    // The change.
    radixkv_event_kind kind;
    // What the lookups of its namespace compare: RADIXKV_KEYS_TOKENS or RADIXKV_KEYS_BIGRAMS.
    uint32_t keys;
    // The parts of the namespace's name.
    const radixkv_text *parts;
    // Their number; 0 for the default namespace.
    size_t parts_len;
    // Tokens of the sequence before those of the blocks.
    size_t start;
    // The tokens of stored blocks; with bigrams, also the one behind them.
    const uint32_t *tokens;
    // Their number; 0 for other changes.
    size_t tokens_len;
    // The blocks, in the order of the sequence.
    const uint32_t *blocks;
    // Their number.
    size_t blocks_len;
    // The cached block before the first stored one. Only if `has_parent`.
    uint32_t parent;
    // Whether there is such a block: not at the beginning of a sequence.
    bool has_parent;
} radixkv_event;

// Where a function writes a result: a pointer to what need not be initialized.
typedef radixkv_event *Output_Event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Writes what the last failed call of this thread found to `error`. A call that succeeds changes nothing of it.
//
// Threads: any; each has its own last error.
radixkv_status radixkv_last_error(radixkv_error *error);

// A short text for a status, without the numbers of a call. Never NULL, valid for ever; also for a number that is no status.
//
// Threads: any.
const char *radixkv_status_text(int32_t status);

// The version of the library, as in "0.1.0". Never NULL, valid for ever.
//
// Threads: any.
const char *radixkv_version(void);

// Makes a builder of a cache with `capacity_blocks` blocks of `block_size` tokens each, that evicts inline, least recently
// used first, by the machine's clock. The numbers are checked by `radixkv_builder_build`.
//
// Threads: any.
radixkv_status radixkv_builder_new(size_t block_size,
                                   size_t capacity_blocks,
                                   NewHandle_Builder builder);

// Sets the eviction policy by its name: lru, lfu, fifo, mru, filo, slru, slru:USES, level or priority.
//
// Errors: INVALID_ARGUMENT for another name; the text lists the names.
//
// Threads: one at a time for each builder.
//
// # Safety
//
// `policy` is NULL or ends with a zero.
radixkv_status radixkv_builder_policy(const radixkv_builder *builder,
                                      const char *policy);

// Lets a thread of the cache evict: it keeps between `low` and `high` blocks free. Both zero: marks that suit the capacity.
// Without this, the thread that needs blocks evicts, and no thread is started.
//
// Errors: `radixkv_builder_build` refuses marks that do not fit the capacity.
//
// Threads: one at a time for each builder.
radixkv_status radixkv_builder_background(const radixkv_builder *builder,
                                          size_t low,
                                          size_t high);

// Lets `radixkv_cache_set_time` be the only clock: with inline eviction and one thread, every answer then depends on the
// calls alone. A nanosecond in a duration is one unit of this clock.
//
// Threads: one at a time for each builder.
radixkv_status radixkv_builder_logical_clock(const radixkv_builder *builder);

// Removes prefixes that were not used for so many nanoseconds, whether or not their blocks are needed.
//
// Threads: one at a time for each builder.
radixkv_status radixkv_builder_time_to_idle(const radixkv_builder *builder,
                                            uint64_t nanos);

// Lets the cache grow to so many blocks while it is in use (`radixkv_cache_grow`). Its capacity may then be 0 at first.
//
// Threads: one at a time for each builder.
radixkv_status radixkv_builder_growable_to(const radixkv_builder *builder,
                                           size_t blocks);

// Lets the engine own the blocks: it passes ids below the capacity to the cache with `radixkv_cache_adopt`, and takes evicted
// ids back with `radixkv_cache_take_evicted`. Reserving and acquiring are refused.
//
// Threads: one at a time for each builder.
radixkv_status radixkv_builder_external(const radixkv_builder *builder);

// Builds a cache with all blocks free. The builder can be used again.
//
// Errors: INVALID_ARGUMENT if the block size or the capacity is 0 or too large, or the watermarks do not fit; NO_THREAD if
// the system did not start the evictor's thread.
//
// Threads: one at a time for each builder.
radixkv_status radixkv_builder_build(const radixkv_builder *builder,
                                     NewHandle_Cache cache);

// Frees a builder. NULL is allowed.
//
// Threads: no other thread may use the builder from now on.
void radixkv_builder_free(radixkv_builder *builder);

// Frees the handle; the cache lives on while other handles made from it do. NULL is allowed.
//
// Threads: no other thread may use this handle from now on.
void radixkv_cache_free(radixkv_cache *cache);

// Tells the tokens of a block.
//
// Threads: any.
radixkv_status radixkv_cache_block_size(const radixkv_cache *cache, Output_usize tokens);

// Tells the blocks that the cache manages.
//
// Threads: any.
radixkv_status radixkv_cache_capacity(const radixkv_cache *cache, Output_usize blocks);

// Tells the blocks that hold nothing. Costs a read.
//
// Threads: any.
radixkv_status radixkv_cache_free_blocks(const radixkv_cache *cache, Output_usize blocks);

// Frees up to `blocks` blocks that no lease protects, in the policy's exact order, and tells how many. `freed` may be NULL.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_cache_evict(const radixkv_cache *cache,
                                   size_t blocks,
                                   Output_usize freed);

// Brings all counts up to date and does all pending work: an exchange of the policy, prefixes that are idle for too long,
// what namespaces cache beyond their quotas.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_cache_settle(const radixkv_cache *cache);

// Does one bounded step of the pending work, and tells whether more is left: for a thread of the engine that has time.
// `more` may be NULL.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_cache_run_once(const radixkv_cache *cache,
                                      Output_bool more);

// Empties the whole cache, with all namespaces. Leased blocks are free when their leases are released; inserts from these
// leases are refused.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_cache_clear(const radixkv_cache *cache);

// Invalidates blocks whose keys and values are wrong, with all that was cached beyond them, and tells how many blocks that
// were. Leases stay: `radixkv_lease_is_invalidated` says which requests to abort. `invalidated` may be NULL.
//
// Threads: any; waits while another thread evicts. Looks at the whole index.
//
// # Safety
//
// `blocks` is NULL, or points to `blocks_len` ids.
radixkv_status radixkv_cache_invalidate(const radixkv_cache *cache,
                                        const uint32_t *blocks,
                                        size_t blocks_len,
                                        Output_usize invalidated);

// Sets the time of a cache with a logical clock. Without effect on any other.
//
// Threads: any.
radixkv_status radixkv_cache_set_time(const radixkv_cache *cache, uint64_t now);

// Adds `blocks` free blocks, and tells the id of the first of them. The others follow it. `first` may be NULL.
//
// Errors: CANNOT_GROW beyond the limit of `radixkv_builder_growable_to`.
//
// Threads: any.
radixkv_status radixkv_cache_grow(const radixkv_cache *cache,
                                  size_t blocks,
                                  Output_u32 first);

// Checks every invariant of the cache: for tests, while no other thread uses it.
//
// Errors: VIOLATION, with the first invariant that is broken.
//
// Threads: any; waits while another thread evicts. Walks the whole index.
radixkv_status radixkv_cache_validate(const radixkv_cache *cache);

// Replaces the policy without a pause. Evictions follow the old policy until the order of the new one is complete, which
// `radixkv_cache_settle` does at once.
//
// Errors: INVALID_ARGUMENT for a name that `radixkv_builder_policy` does not know.
//
// Threads: any; waits while another thread evicts.
//
// # Safety
//
// `policy` is NULL or ends with a zero.
radixkv_status radixkv_cache_set_policy(const radixkv_cache *cache,
                                        const char *policy);

// Changes how many blocks the background evictor keeps free.
//
// Errors: NOT_BACKGROUND, INVALID_ARGUMENT.
//
// Threads: any.
radixkv_status radixkv_cache_set_watermarks(const radixkv_cache *cache, size_t low, size_t high);

// Changes the time without a use after which a prefix is removed, in nanoseconds; 0: none is.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_cache_set_time_to_idle(const radixkv_cache *cache, uint64_t nanos);

// Makes a handle on the namespace of a name, and the namespace if there is none. The name has `count` parts, each UTF-8, of
// `lengths[i]` bytes, or ending with a zero if `lengths` is NULL. The same parts with other `keys` name another namespace. No
// parts, with RADIXKV_KEYS_TOKENS, name the default namespace.
//
// Errors: INVALID_ARGUMENT for text that is not UTF-8, and unknown keys.
//
// Threads: any; takes a short lock.
//
// # Safety
//
// `parts` is NULL or points to `count` texts, and `lengths` is NULL or points to their lengths.
radixkv_status radixkv_namespace_new(const radixkv_cache *cache,
                                     const char *const *parts,
                                     const size_t *lengths,
                                     size_t count,
                                     uint32_t keys,
                                     NewHandle_Namespace space);

// Makes a handle on the default namespace, for sequences that need no separation.
//
// Threads: any.
radixkv_status radixkv_namespace_default(const radixkv_cache *cache, NewHandle_Namespace space);

// Frees the handle; what the namespace caches stays. NULL is allowed.
//
// Threads: no other thread may use this handle from now on.
void radixkv_namespace_free(radixkv_namespace *space);

// Sets the limits of a namespace: blocks that it may cache, blocks that its leases and reservations may hold, and nanoseconds
// that its prefixes may stay without a use. Each is a number or RADIXKV_NO_LIMIT.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_namespace_set_quota(const radixkv_namespace *space,
                                           uint64_t cached_blocks,
                                           uint64_t pinned_blocks,
                                           uint64_t idle_nanos);

// Empties the namespace. Leased blocks are free when their leases are released; inserts from these leases are refused.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_namespace_clear(const radixkv_namespace *space);

// Empties the namespace if nothing leases or reserves in it.
//
// Errors: NAMESPACE_IN_USE, with the leased blocks as `available` and the reserved ones as `limit`.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_namespace_clear_if_unused(const radixkv_namespace *space);

// Removes the namespace. Matches through old handles find nothing, and inserts are refused. The default namespace is cleared
// instead.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_namespace_remove(const radixkv_namespace *space);

// Frees up to `blocks` blocks of the namespace that no lease protects, and tells how many. `freed` may be NULL.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_namespace_evict(const radixkv_namespace *space,
                                       size_t blocks,
                                       Output_usize freed);

// Frees every prefix of the namespace that was not used for so many nanoseconds, and tells how many blocks that were. `freed`
// may be NULL.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_namespace_evict_idle(const radixkv_namespace *space,
                                            uint64_t idle_nanos,
                                            Output_usize freed);

// Tells what the lookups of the namespace compare: RADIXKV_KEYS_TOKENS or RADIXKV_KEYS_BIGRAMS.
//
// Threads: any.
radixkv_status radixkv_namespace_keys(const radixkv_namespace *space, Output_u32 keys);

// Makes a session.
//
// Threads: any.
radixkv_status radixkv_session_new(const radixkv_cache *cache, NewHandle_Session session);

// Frees a session. NULL is allowed.
//
// Threads: no other thread may use the session from now on.
void radixkv_session_free(radixkv_session *session);

// Leases the longest cached prefix of the tokens, in whole blocks, and counts as a use of it. `blocks` is NULL, with room 0, or
// has room for every whole block of the tokens (`tokens_len / block_size`); then the ids of the prefix are written to it. Their
// number is `hit_tokens / block_size`. `hit_tokens` may be NULL. A miss is a lease of no tokens.
//
// Errors: BUFFER_TOO_SHORT, OTHER_CACHE.
//
// Threads: one at a time for each session; never waits.
//
// # Safety
//
// `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
radixkv_status radixkv_session_match(const radixkv_session *session,
                                     const radixkv_namespace *space,
                                     const uint32_t *tokens,
                                     size_t tokens_len,
                                     uint32_t *blocks,
                                     size_t blocks_room,
                                     Output_usize hit_tokens,
                                     NewHandle_Lease lease);

// Tells how many of the tokens are cached, in whole blocks. Leases nothing, and counts as no use: what it tells may be evicted
// at any moment.
//
// Errors: OTHER_CACHE.
//
// Threads: one at a time for each session; never waits.
//
// # Safety
//
// `tokens` is NULL, or points to `tokens_len` numbers.
radixkv_status radixkv_session_peek(const radixkv_session *session,
                                    const radixkv_namespace *space,
                                    const uint32_t *tokens,
                                    size_t tokens_len,
                                    Output_usize hit_tokens);

// Matches as `radixkv_session_match` does, and reserves blocks for the rest of the tokens and for `room_tokens` more; or takes
// nothing. The namespace pays for the blocks. An engine that wants the logits of the last token passes the tokens before it,
// and one more of room. Answers at once, before the requests that wait.
//
// Errors: BUFFER_TOO_SHORT, OTHER_CACHE, EXHAUSTED, OVER_QUOTA, TOO_LARGE, EXTERNAL_POOL.
//
// Threads: one at a time for each session; waits while another thread evicts, if blocks must be evicted.
//
// # Safety
//
// `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
radixkv_status radixkv_session_acquire(const radixkv_session *session,
                                       const radixkv_namespace *space,
                                       const uint32_t *tokens,
                                       size_t tokens_len,
                                       size_t room_tokens,
                                       uint32_t *blocks,
                                       size_t blocks_room,
                                       Output_usize hit_tokens,
                                       NewHandle_Lease lease,
                                       NewHandle_Reservation reservation);

// Acquires as `radixkv_session_acquire` does, and waits up to `timeout_nanos` while leases and reservations hold too many
// blocks; in order of arrival, without a lease or a block. Do not wait for blocks that only this thread can release.
//
// Errors: as `radixkv_session_acquire`, with TIMED_OUT instead of EXHAUSTED.
//
// Threads: one at a time for each session; waits.
//
// # Safety
//
// As `radixkv_session_acquire`.
radixkv_status radixkv_session_acquire_within(const radixkv_session *session,
                                              const radixkv_namespace *space,
                                              const uint32_t *tokens,
                                              size_t tokens_len,
                                              size_t room_tokens,
                                              uint64_t timeout_nanos,
                                              uint32_t *blocks,
                                              size_t blocks_room,
                                              Output_usize hit_tokens,
                                              NewHandle_Lease lease,
                                              NewHandle_Reservation reservation);

// Takes `blocks` blocks, or nothing. If too few are free, it evicts exactly the missing ones. The blocks count against the
// quota of `payer`, the default namespace if it is NULL, until they are inserted or given back. Answers at once, before the
// requests that wait.
//
// Errors: OTHER_CACHE, EXHAUSTED, OVER_QUOTA, TOO_LARGE, EXTERNAL_POOL.
//
// Threads: one at a time for each session; waits while another thread evicts, if blocks must be evicted.
radixkv_status radixkv_session_reserve(const radixkv_session *session,
                                       const radixkv_namespace *payer,
                                       size_t blocks,
                                       NewHandle_Reservation reservation);

// Reserves as `radixkv_session_reserve` does, and waits up to `timeout_nanos` while leases and reservations hold too many
// blocks. Requests `for_running_sequence` are served before those that admit a sequence, each kind in order of arrival. Do not
// wait for blocks that only this thread can release.
//
// Errors: as `radixkv_session_reserve`, with TIMED_OUT instead of EXHAUSTED.
//
// Threads: one at a time for each session; waits.
radixkv_status radixkv_session_reserve_within(const radixkv_session *session,
                                              const radixkv_namespace *payer,
                                              size_t blocks,
                                              bool for_running_sequence,
                                              uint64_t timeout_nanos,
                                              NewHandle_Reservation reservation);

// Publishes the whole blocks of the tokens beyond `lease`, which were computed into the blocks of `reservation`, in its order.
// The tokens are the whole sequence; those that the lease covers are not compared.
//
// The reservation must hold exactly as many blocks as there are whole blocks beyond the lease
// (`radixkv_reservation_split`). After success it holds the duplicates: its blocks whose tokens another insert had published
// meanwhile, mostly none. Free it in either case, or use it again.
//
// `blocks` is NULL, with room 0, or has room for as many ids as the reservation has; then the cached ids of these blocks are
// written to it, which the block table of the sequence should name from now on. `inserted` becomes a lease on all that is
// cached of the sequence; `lease` stays, and may be released. `dropped_tokens`, which may be NULL, is the number of tokens at
// the end that fill no block.
//
// Errors, after which the reservation is as it was: BUFFER_TOO_SHORT, OTHER_CACHE, SEQUENCE_TOO_SHORT, BLOCK_COUNT,
// SEQUENCE_TOO_LONG, OVER_QUOTA, SHARED_BLOCK, NAMESPACE_REMOVED, INVALIDATED, TOO_MANY_BRANCHES.
//
// Threads: one at a time for each session and each reservation; never waits. What the thread wrote before the call is visible
// to a thread that matches the blocks.
//
// # Safety
//
// `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
radixkv_status radixkv_session_insert(const radixkv_session *session,
                                      const radixkv_lease *lease,
                                      const uint32_t *tokens,
                                      size_t tokens_len,
                                      const radixkv_reservation *reservation,
                                      uint32_t *blocks,
                                      size_t blocks_room,
                                      Output_usize dropped_tokens,
                                      NewHandle_Lease inserted);

// Releases a lease. NULL is allowed.
//
// Threads: no other thread may use this lease from now on. Never waits, unless a thread that waits for blocks must be woken,
// or it is the last handle of its cache.
void radixkv_lease_release(radixkv_lease *lease);

// Makes a second lease on the same prefix.
//
// Errors: TOO_MANY_LEASES.
//
// Threads: any; never waits.
radixkv_status radixkv_lease_clone(const radixkv_lease *lease, NewHandle_Lease clone);

// Tells how many tokens a lease protects: those of whole blocks.
//
// Threads: any.
radixkv_status radixkv_lease_len_tokens(const radixkv_lease *lease, Output_usize tokens);

// Tells whether blocks of a lease were invalidated, so that its request must be computed again.
//
// Threads: any; never waits.
radixkv_status radixkv_lease_is_invalidated(const radixkv_lease *lease, Output_bool invalidated);

// Lets a lease cover what was cached beyond it meanwhile. The tokens are the whole sequence; those that the lease covers are not
// compared. `blocks` is NULL, with room 0, or has room for every whole block of the tokens; then the ids of the whole prefix are
// written to it. `hit_tokens` may be NULL.
//
// Errors, after which the lease is as it was: BUFFER_TOO_SHORT, OTHER_CACHE, SEQUENCE_TOO_SHORT, TOO_MANY_LEASES.
//
// Threads: one at a time for each session, and no other thread may use the lease during the call. Never waits.
//
// # Safety
//
// `tokens` and `blocks` are NULL, or point to `tokens_len` and `blocks_room` numbers.
radixkv_status radixkv_session_resume(const radixkv_session *session,
                                      radixkv_lease *lease,
                                      const uint32_t *tokens,
                                      size_t tokens_len,
                                      uint32_t *blocks,
                                      size_t blocks_room,
                                      Output_usize hit_tokens);

// Leases the cached block just beyond `lease` that agrees longest with the tokens, the whole sequence. `hit` is NULL if no
// block agrees in `min_tokens` tokens; otherwise copy the first `hit_tokens` tokens of the block `block` into one of your own,
// and free the hit.
//
// Errors: OTHER_CACHE, SEQUENCE_TOO_SHORT.
//
// Threads: one at a time for each session; never waits.
//
// # Safety
//
// `tokens` is NULL, or points to `tokens_len` numbers.
radixkv_status radixkv_session_match_partial(const radixkv_session *session,
                                             const radixkv_lease *lease,
                                             const uint32_t *tokens,
                                             size_t tokens_len,
                                             size_t min_tokens,
                                             Output_u32 block,
                                             Output_usize hit_tokens,
                                             NewHandle_PartialHit hit);

// Frees a partial hit. NULL is allowed.
//
// Threads: no other thread may use it from now on.
void radixkv_partial_hit_free(radixkv_partial_hit *hit);

// Keeps the prefix of a lease from being evicted for so many nanoseconds, even if the lease is released.
//
// Errors: OTHER_CACHE, NAMESPACE_REMOVED, INVALIDATED, TOO_MANY_LEASES.
//
// Threads: one at a time for each session; never waits.
radixkv_status radixkv_session_retain(const radixkv_session *session,
                                      const radixkv_lease *lease,
                                      uint64_t nanos);

// Ends the retention of exactly the prefix of a lease.
//
// Errors: OTHER_CACHE.
//
// Threads: one at a time for each session; waits while another thread evicts.
radixkv_status radixkv_session_release_retained(const radixkv_session *session,
                                                const radixkv_lease *lease);

// Gives the prefix of a lease a priority for so many nanoseconds, without end if they are 0. The default is 35. Only the policy
// "priority" evicts by it, the lowest first.
//
// Errors: OTHER_CACHE.
//
// Threads: one at a time for each session; never waits.
radixkv_status radixkv_session_prioritize(const radixkv_session *session,
                                          const radixkv_lease *lease,
                                          int64_t level,
                                          uint64_t nanos);

// Lets the prefix of a lease be evicted before all others, under every policy, until it is used again.
//
// Errors: OTHER_CACHE.
//
// Threads: one at a time for each session; never waits.
radixkv_status radixkv_session_demote(const radixkv_session *session,
                                      const radixkv_lease *lease);

// Makes a weak lease on the prefix of a lease.
//
// Threads: any; never waits.
radixkv_status radixkv_lease_downgrade(const radixkv_lease *lease, NewHandle_WeakLease weak);

// Leases the prefix of a weak lease; `lease` is NULL if any of its blocks is gone, or it is empty. Counts as no use.
//
// Errors: OTHER_CACHE.
//
// Threads: one at a time for each session; never waits.
radixkv_status radixkv_session_upgrade(const radixkv_session *session,
                                       const radixkv_weak_lease *weak,
                                       NewHandle_Lease lease);

// Frees a weak lease. NULL is allowed.
//
// Threads: no other thread may use it from now on.
void radixkv_weak_lease_free(radixkv_weak_lease *weak);

// Frees a reservation, and gives its blocks back. NULL is allowed.
//
// Threads: no other thread may use the reservation from now on.
void radixkv_reservation_free(radixkv_reservation *reservation);

// Tells how many blocks a reservation holds.
//
// Threads: one at a time for each reservation.
radixkv_status radixkv_reservation_len(const radixkv_reservation *reservation, Output_usize blocks);

// Writes the ids of the blocks to `blocks`, in the order in which an insert takes them, and their number to `len`, which may be
// NULL.
//
// Errors: BUFFER_TOO_SHORT.
//
// Threads: one at a time for each reservation.
//
// # Safety
//
// `blocks` is NULL, or points to `blocks_room` numbers.
radixkv_status radixkv_reservation_blocks(const radixkv_reservation *reservation,
                                          uint32_t *blocks,
                                          size_t blocks_room,
                                          Output_usize len);

// Moves the first `count` blocks into a new reservation: for a prompt that is inserted in chunks.
//
// Errors: INVALID_ARGUMENT if it holds fewer.
//
// Threads: one at a time for each reservation.
radixkv_status radixkv_reservation_split(const radixkv_reservation *reservation,
                                         size_t count,
                                         NewHandle_Reservation first);

// Moves all blocks of `more` to the end of `reservation`: for a sequence that grows. `more` is empty then, and still to be
// freed.
//
// Errors: INVALID_ARGUMENT if both are one reservation; OTHER_CACHE; OTHER_PAYER.
//
// Threads: one at a time for each reservation.
radixkv_status radixkv_reservation_append(const radixkv_reservation *reservation,
                                          const radixkv_reservation *more);

// Makes a second reservation of the same blocks, for a sequence that continues in several ways. A block is given back when the
// last of them is freed. While several have it, none may write to it or insert it (`radixkv_reservation_make_unique`).
//
// Threads: one at a time for each reservation.
radixkv_status radixkv_reservation_fork(const radixkv_reservation *reservation,
                                        NewHandle_Reservation fork);

// Lets the reservation alone have its block `index`. If a fork also holds the block, the last block of `fresh` takes its place,
// `copy` becomes a handle, and the caller copies the block `source` to `destination` before it frees that; otherwise `copy` is
// NULL, and nothing has changed. `source` and `destination` may be NULL.
//
// Errors: INVALID_ARGUMENT if there is no such block, or none to copy into, or a fork also holds that one; OTHER_CACHE.
//
// Threads: one at a time for each reservation.
radixkv_status radixkv_reservation_make_unique(const radixkv_reservation *reservation,
                                               size_t index,
                                               const radixkv_reservation *fresh,
                                               Output_u32 source,
                                               Output_u32 destination,
                                               NewHandle_Copy copy);

// Frees a copy that was made. NULL is allowed.
//
// Threads: no other thread may use it from now on.
void radixkv_copy_free(radixkv_copy *copy);

// Passes blocks of the engine to a cache with an external pool, for an insert: all of them or none.
//
// Errors: NOT_EXTERNAL, BLOCK_OUT_OF_RANGE, BLOCK_HELD.
//
// Threads: any; never waits.
//
// # Safety
//
// `blocks` is NULL, or points to `blocks_len` ids.
radixkv_status radixkv_cache_adopt(const radixkv_cache *cache,
                                   const uint32_t *blocks,
                                   size_t blocks_len,
                                   NewHandle_Reservation reservation);

// Takes back up to `blocks_room` ids of blocks that the cache evicted, cleared or gave up, writes them to `blocks`, and their
// number to `taken`. Call it again while it fills the whole buffer.
//
// Errors: NOT_EXTERNAL; INVALID_ARGUMENT if there is no room.
//
// Threads: any; takes a short lock.
//
// # Safety
//
// `blocks` is NULL, or points to `blocks_room` numbers.
radixkv_status radixkv_cache_take_evicted(const radixkv_cache *cache,
                                          uint32_t *blocks,
                                          size_t blocks_room,
                                          Output_usize taken);

// Writes the statistics of a cache to `stats`, of which the caller knows `size` bytes: pass `sizeof(radixkv_stats)`.
//
// Threads: any; never waits.
//
// # Safety
//
// `stats` is NULL, or points to `size` bytes.
radixkv_status radixkv_cache_read_stats(const radixkv_cache *cache,
                                        radixkv_stats *stats,
                                        size_t size);

// Writes the statistics of a namespace to `stats`, of which the caller knows `size` bytes: pass
// `sizeof(radixkv_namespace_stats)`.
//
// Threads: any; never waits.
//
// # Safety
//
// `stats` is NULL, or points to `size` bytes.
radixkv_status radixkv_namespace_read_stats(const radixkv_namespace *space,
                                            radixkv_namespace_stats *stats,
                                            size_t size);

// Subscribes to the changes from now on, through a channel of up to `batches` batches, at least one. A batch that finds it full
// is lost to this subscriber: no other thread waits.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_cache_subscribe(const radixkv_cache *cache,
                                       size_t batches,
                                       NewHandle_Subscription subscription);

// Takes the next batch; `batch` is NULL if there is none.
//
// Threads: one at a time for each subscription; never waits.
radixkv_status radixkv_subscription_next(const radixkv_subscription *subscription,
                                         NewHandle_Batch batch);

// Tells how many batches were lost because the channel was full (start again from a snapshot), and whether the cache is gone
// and all its batches were taken. Both may be NULL.
//
// Threads: one at a time for each subscription.
radixkv_status radixkv_subscription_state(const radixkv_subscription *subscription,
                                          Output_u64 lost_batches,
                                          Output_bool has_ended);

// Frees a subscription. NULL is allowed.
//
// Threads: no other thread may use the subscription from now on.
void radixkv_subscription_free(radixkv_subscription *subscription);

// Takes a snapshot of what is cached, as a batch of stores, each after its parent. It has the number of the next batch that a
// subscriber gets: with the batches from that number on it makes up everything.
//
// Threads: any; waits while another thread evicts.
radixkv_status radixkv_cache_snapshot(const radixkv_cache *cache,
                                      NewHandle_Batch batch);

// Tells the number of a batch and how many events it has. Both may be NULL.
//
// Threads: any.
radixkv_status radixkv_batch_len(const radixkv_batch *batch,
                                 Output_u64 number,
                                 Output_usize events);

// Writes the event `index` of a batch, counted from 0, to `event`.
//
// Errors: INVALID_ARGUMENT if there is none.
//
// Threads: any.
radixkv_status radixkv_batch_event(const radixkv_batch *batch, size_t index, Output_Event event);

// Frees a batch, and what its events point to. NULL is allowed.
//
// Threads: no other thread may use the batch from now on.
void radixkv_batch_free(radixkv_batch *batch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RADIXKV_H */
