// Handles for C++17 on radixkv.h: each is moved, not copied, and freed when it goes out of scope.
//
// A call that fails throws radixkv::Error, and nothing has changed. Thread rules, costs and errors
// are those of the C function that a method is named after. A method that takes tokens or blocks
// takes any contiguous range of std::uint32_t: a vector, an array, or a pointer and a length.
#ifndef RADIXKV_HPP
#define RADIXKV_HPP

#include "radixkv.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace radixkv {

// A failed call: its text, its status and its numbers.
class Error : public std::runtime_error {
public:
    explicit Error(const radixkv_error &error)
        : std::runtime_error(error.text), status(error.status), requested(error.requested),
          available(error.available), limit(error.limit) {}

    radixkv_status status;
    std::size_t requested;
    std::size_t available;
    std::size_t limit;
};

// Throws the last error of this thread, unless `status` says that the call succeeded.
inline void check(radixkv_status status) {
    if (status != RADIXKV_STATUS_OK) {
        radixkv_error error;
        radixkv_last_error(&error);
        throw Error(error);
    }
}

// A view of tokens or block ids, valid as long as what it was made from.
class Numbers {
public:
    Numbers(const std::uint32_t *data, std::size_t size) : data_(data), size_(size) {}
    template <typename Range, typename = decltype(std::declval<const Range &>().data() + 0)>
    Numbers(const Range &range) : data_(range.data()), size_(range.size()) {}
    template <std::size_t Size>
    Numbers(const std::uint32_t (&array)[Size]) : data_(array), size_(Size) {}

    const std::uint32_t *data() const { return data_; }
    std::size_t size() const { return size_; }

private:
    const std::uint32_t *data_;
    std::size_t size_;
};

namespace detail {

template <typename Handle, void (*Free)(Handle *)>
struct Deleter {
    void operator()(Handle *handle) const { Free(handle); }
};

// A handle that is freed by `Free`.
template <typename Handle, void (*Free)(Handle *)>
class Owned {
public:
    Owned() = default;
    explicit Owned(Handle *handle) : handle_(handle) {}

    // The handle for a C function; this keeps it.
    Handle *get() const { return handle_.get(); }
    explicit operator bool() const { return handle_ != nullptr; }
    // Frees it now.
    void reset() { handle_.reset(); }

private:
    std::unique_ptr<Handle, Deleter<Handle, Free>> handle_;
};

// The result that a C function writes through its last argument.
template <typename Result, typename... Parameters, typename... Arguments>
Result result(radixkv_status (*function)(Parameters...), Arguments... arguments) {
    Result result{};
    check(function(arguments..., &result));
    return result;
}

inline std::uint64_t nanos(std::chrono::nanoseconds time) {
    return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

// For a function for which 0 means "without end": a time that has passed is the shortest one.
inline std::uint64_t nanos_or_never(std::chrono::nanoseconds time) {
    return time.count() < 0 ? 1 : static_cast<std::uint64_t>(time.count());
}

} // namespace detail

// A prefix that is not protected.
class WeakLease : public detail::Owned<radixkv_weak_lease, radixkv_weak_lease_free> {
public:
    using Owned::Owned;
};

// A promise that the blocks of a prefix stay.
class Lease : public detail::Owned<radixkv_lease, radixkv_lease_release> {
public:
    using Owned::Owned;

    Lease clone() const { return Lease(detail::result<radixkv_lease *>(radixkv_lease_clone, get())); }
    WeakLease downgrade() const {
        return WeakLease(detail::result<radixkv_weak_lease *>(radixkv_lease_downgrade, get()));
    }
    std::size_t len_tokens() const { return detail::result<std::size_t>(radixkv_lease_len_tokens, get()); }
    bool is_invalidated() const { return detail::result<bool>(radixkv_lease_is_invalidated, get()); }
};

// A copy to make: block `source` to block `destination`. The source keeps its content until this is
// destroyed. False if no copy is needed.
class PendingCopy : public detail::Owned<radixkv_copy, radixkv_copy_free> {
public:
    PendingCopy(radixkv_copy *copy, std::uint32_t source_block, std::uint32_t destination_block)
        : Owned(copy), source(source_block), destination(destination_block) {}

    std::uint32_t source;
    std::uint32_t destination;
};

// Blocks that their owner fills and then inserts.
class Reservation : public detail::Owned<radixkv_reservation, radixkv_reservation_free> {
public:
    using Owned::Owned;

    std::size_t size() const { return detail::result<std::size_t>(radixkv_reservation_len, get()); }
    std::vector<std::uint32_t> blocks() const {
        std::vector<std::uint32_t> ids(size());
        check(radixkv_reservation_blocks(get(), ids.data(), ids.size(), nullptr));
        return ids;
    }
    // Moves the first `count` blocks into a new reservation.
    Reservation split(std::size_t count) {
        return Reservation(detail::result<radixkv_reservation *>(radixkv_reservation_split, get(), count));
    }
    // Moves all blocks of `more` to the end.
    void append(Reservation &&more) {
        check(radixkv_reservation_append(get(), more.get()));
        more.reset();
    }
    Reservation fork() {
        return Reservation(detail::result<radixkv_reservation *>(radixkv_reservation_fork, get()));
    }
    // Before the sequence writes to block `index`. Takes the last block of `fresh` if it must.
    PendingCopy make_unique(std::size_t index, Reservation &fresh) {
        std::uint32_t source = 0, destination = 0;
        radixkv_copy *copy = nullptr;
        check(radixkv_reservation_make_unique(get(), index, fresh.get(), &source, &destination, &copy));
        return PendingCopy(copy, source, destination);
    }
};

// The longest cached prefix of a sequence.
struct Match {
    Lease lease;
    std::vector<std::uint32_t> blocks;
    std::size_t tokens = 0;
};

// A cached block whose first `tokens` tokens agree with a sequence beyond its match. It stays in
// place until this is destroyed. False if there is none.
class PartialHit : public detail::Owned<radixkv_partial_hit, radixkv_partial_hit_free> {
public:
    PartialHit(radixkv_partial_hit *hit, std::uint32_t block_id, std::size_t token_count)
        : Owned(hit), block(block_id), tokens(token_count) {}

    std::uint32_t block;
    std::size_t tokens;
};

// A match, and blocks for the rest of the sequence.
struct Acquired {
    Match hit;
    Reservation blocks;
};

// What an insert cached.
struct Inserted {
    Lease lease;
    // The cached ids of the blocks that were inserted.
    std::vector<std::uint32_t> blocks;
    std::size_t dropped_tokens = 0;
};

// Sequences that share nothing with those of other namespaces.
class Namespace : public detail::Owned<radixkv_namespace, radixkv_namespace_free> {
public:
    using Owned::Owned;

    void set_quota(std::optional<std::uint64_t> cached_blocks,
                   std::optional<std::uint64_t> pinned_blocks,
                   std::optional<std::chrono::nanoseconds> idle = std::nullopt) {
        check(radixkv_namespace_set_quota(get(), cached_blocks.value_or(RADIXKV_NO_LIMIT),
                                          pinned_blocks.value_or(RADIXKV_NO_LIMIT),
                                          idle ? detail::nanos(*idle) : RADIXKV_NO_LIMIT));
    }
    radixkv_namespace_stats stats() const {
        radixkv_namespace_stats stats;
        check(radixkv_namespace_read_stats(get(), &stats, sizeof stats));
        return stats;
    }
    std::uint32_t keys() const { return detail::result<std::uint32_t>(radixkv_namespace_keys, get()); }
    std::size_t evict(std::size_t blocks) {
        return detail::result<std::size_t>(radixkv_namespace_evict, get(), blocks);
    }
    std::size_t evict_idle(std::chrono::nanoseconds idle) {
        return detail::result<std::size_t>(radixkv_namespace_evict_idle, get(), detail::nanos(idle));
    }
    void clear() { check(radixkv_namespace_clear(get())); }
    void clear_if_unused() { check(radixkv_namespace_clear_if_unused(get())); }
    void remove() { check(radixkv_namespace_remove(get())); }
};

// One thread's access to a cache.
class Session : public detail::Owned<radixkv_session, radixkv_session_free> {
public:
    Session() = default;
    Session(radixkv_session *session, std::size_t block_size) : Owned(session), block_size_(block_size) {}

    Match match(const Namespace &space, Numbers tokens) { return match_by(radixkv_session_match, space, tokens); }
    // Counts as no use.
    Match match_untouched(const Namespace &space, Numbers tokens) {
        return match_by(radixkv_session_match_untouched, space, tokens);
    }
    std::size_t peek(const Namespace &space, Numbers tokens) {
        return detail::result<std::size_t>(radixkv_session_peek, get(), space.get(), tokens.data(),
                                           tokens.size());
    }
    Acquired acquire(const Namespace &space, Numbers tokens, std::size_t room_tokens) {
        Match hit = empty(tokens);
        radixkv_lease *lease = nullptr;
        radixkv_reservation *blocks = nullptr;
        check(radixkv_session_acquire(get(), space.get(), tokens.data(), tokens.size(), room_tokens,
                                      hit.blocks.data(), hit.blocks.size(), &hit.tokens, &lease, &blocks));
        return Acquired{complete(std::move(hit), lease), Reservation(blocks)};
    }
    Acquired acquire_within(const Namespace &space, Numbers tokens, std::size_t room_tokens,
                            std::chrono::nanoseconds timeout) {
        Match hit = empty(tokens);
        radixkv_lease *lease = nullptr;
        radixkv_reservation *blocks = nullptr;
        check(radixkv_session_acquire_within(get(), space.get(), tokens.data(), tokens.size(), room_tokens,
                                             detail::nanos(timeout), hit.blocks.data(), hit.blocks.size(),
                                             &hit.tokens, &lease, &blocks));
        return Acquired{complete(std::move(hit), lease), Reservation(blocks)};
    }
    Reservation reserve(std::size_t blocks, const Namespace *payer = nullptr) {
        radixkv_namespace *pays = payer ? payer->get() : nullptr;
        return Reservation(detail::result<radixkv_reservation *>(radixkv_session_reserve, get(), pays, blocks));
    }
    // Requests for running sequences are served before those that admit one.
    Reservation reserve_within(std::size_t blocks, bool for_running_sequence, std::chrono::nanoseconds timeout,
                               const Namespace *payer = nullptr) {
        radixkv_namespace *pays = payer ? payer->get() : nullptr;
        return Reservation(detail::result<radixkv_reservation *>(
            radixkv_session_reserve_within, get(), pays, blocks, for_running_sequence, detail::nanos(timeout)));
    }
    // Afterwards `blocks` holds the duplicates; if this throws, what it held.
    Inserted insert(const Lease &lease, Numbers tokens, Reservation &blocks) {
        Inserted inserted;
        inserted.blocks.resize(blocks.size());
        radixkv_lease *whole = nullptr;
        check(radixkv_session_insert(get(), lease.get(), tokens.data(), tokens.size(), blocks.get(),
                                     inserted.blocks.data(), inserted.blocks.size(),
                                     &inserted.dropped_tokens, &whole));
        inserted.lease = Lease(whole);
        return inserted;
    }
    // Lets `lease` cover what was cached beyond it; returns the tokens that it covers now.
    std::size_t resume(Lease &lease, Numbers tokens) {
        return detail::result<std::size_t>(radixkv_session_resume, get(), lease.get(), tokens.data(),
                                           tokens.size(), nullptr, std::size_t{0});
    }
    PartialHit match_partial(const Lease &lease, Numbers tokens, std::size_t min_tokens) {
        std::uint32_t block = 0;
        std::size_t agree = 0;
        radixkv_partial_hit *hit = nullptr;
        check(radixkv_session_match_partial(get(), lease.get(), tokens.data(), tokens.size(), min_tokens, &block,
                                            &agree, &hit));
        return PartialHit(hit, block, agree);
    }
    // False if any block of the prefix is gone.
    Lease upgrade(const WeakLease &weak) {
        return Lease(detail::result<radixkv_lease *>(radixkv_session_upgrade, get(), weak.get()));
    }
    void retain(const Lease &lease, std::chrono::nanoseconds time) {
        check(radixkv_session_retain(get(), lease.get(), detail::nanos(time)));
    }
    void release_retained(const Lease &lease) { check(radixkv_session_release_retained(get(), lease.get())); }
    // A time of zero is without end.
    void prioritize(const Lease &lease, std::int64_t level, std::chrono::nanoseconds time = {}) {
        check(radixkv_session_prioritize(get(), lease.get(), level, detail::nanos_or_never(time)));
    }
    void demote(const Lease &lease) { check(radixkv_session_demote(get(), lease.get())); }

private:
    Match match_by(decltype(&radixkv_session_match) function, const Namespace &space, Numbers tokens) {
        Match hit = empty(tokens);
        radixkv_lease *lease = nullptr;
        check(function(get(), space.get(), tokens.data(), tokens.size(), hit.blocks.data(), hit.blocks.size(),
                       &hit.tokens, &lease));
        return complete(std::move(hit), lease);
    }
    Match empty(Numbers tokens) const {
        Match hit;
        hit.blocks.resize(tokens.size() / block_size_);
        return hit;
    }
    Match complete(Match hit, radixkv_lease *lease) const {
        hit.lease = Lease(lease);
        hit.blocks.resize(hit.tokens / block_size_);
        return hit;
    }

    std::size_t block_size_ = 1;
};

// Consecutive events. An event's pointers are valid as long as its batch.
class Batch : public detail::Owned<radixkv_batch, radixkv_batch_free> {
public:
    using Owned::Owned;

    std::uint64_t number() const {
        std::uint64_t number = 0;
        check(radixkv_batch_len(get(), &number, nullptr));
        return number;
    }
    std::size_t size() const {
        std::size_t events = 0;
        check(radixkv_batch_len(get(), nullptr, &events));
        return events;
    }
    radixkv_event operator[](std::size_t index) const {
        return detail::result<radixkv_event>(radixkv_batch_event, get(), index);
    }
};

// Evicted blocks, which stay reserved until this is destroyed.
class Evicted : public detail::Owned<radixkv_evicted, radixkv_evicted_free> {
public:
    Evicted(radixkv_evicted *evicted, std::size_t sequences) : Owned(evicted), size_(sequences) {}

    // The number of sequences that the blocks belong to.
    std::size_t size() const { return size_; }
    radixkv_event operator[](std::size_t index) const {
        return detail::result<radixkv_event>(radixkv_evicted_get, get(), index);
    }

private:
    std::size_t size_;
};

// A listener's end of a channel of batches.
class Subscription : public detail::Owned<radixkv_subscription, radixkv_subscription_free> {
public:
    using Owned::Owned;

    // The next batch; false if there is none.
    Batch next() {
        return Batch(detail::result<radixkv_batch *>(radixkv_subscription_next, get()));
    }
    std::uint64_t lost_batches() const {
        std::uint64_t lost = 0;
        check(radixkv_subscription_state(get(), &lost, nullptr));
        return lost;
    }
};

// A cache; it lives as long as any handle made from it.
class Cache : public detail::Owned<radixkv_cache, radixkv_cache_free> {
public:
    using Owned::Owned;

    Session session() const {
        return Session(detail::result<radixkv_session *>(radixkv_session_new, get()), block_size());
    }
    Namespace default_namespace() const {
        return Namespace(detail::result<radixkv_namespace *>(radixkv_namespace_default, get()));
    }
    Namespace space(const std::vector<std::string_view> &parts, std::uint32_t keys = RADIXKV_KEYS_TOKENS) const {
        std::vector<const char *> texts;
        std::vector<std::size_t> lengths;
        for (std::string_view part : parts) {
            // An empty view may have no bytes to point to.
            texts.push_back(part.empty() ? "" : part.data());
            lengths.push_back(part.size());
        }
        return Namespace(detail::result<radixkv_namespace *>(radixkv_namespace_new, get(), texts.data(),
                                                             lengths.data(), texts.size(), keys));
    }
    std::size_t block_size() const { return detail::result<std::size_t>(radixkv_cache_block_size, get()); }
    std::size_t capacity() const { return detail::result<std::size_t>(radixkv_cache_capacity, get()); }
    std::size_t free_blocks() const { return detail::result<std::size_t>(radixkv_cache_free_blocks, get()); }
    std::size_t evict(std::size_t blocks) {
        return detail::result<std::size_t>(radixkv_cache_evict, get(), blocks);
    }
    // Evicts, and keeps the blocks until they are copied.
    Evicted evict_into(std::size_t blocks) {
        std::size_t sequences = 0;
        radixkv_evicted *evicted = nullptr;
        check(radixkv_cache_evict_into(get(), blocks, &sequences, &evicted));
        return Evicted(evicted, sequences);
    }
    std::size_t invalidate(Numbers blocks) {
        return detail::result<std::size_t>(radixkv_cache_invalidate, get(), blocks.data(), blocks.size());
    }
    void clear() { check(radixkv_cache_clear(get())); }
    // Adds blocks; returns the id of the first one.
    std::uint32_t grow(std::size_t blocks) {
        return detail::result<std::uint32_t>(radixkv_cache_grow, get(), blocks);
    }
    // Passes blocks of the engine to a cache with an external pool.
    Reservation adopt(Numbers blocks) {
        return Reservation(detail::result<radixkv_reservation *>(radixkv_cache_adopt, get(), blocks.data(),
                                                                 blocks.size()));
    }
    // Takes back evicted blocks of an external pool, at most `most`.
    std::vector<std::uint32_t> take_evicted(std::size_t most) {
        std::vector<std::uint32_t> blocks(most);
        blocks.resize(detail::result<std::size_t>(radixkv_cache_take_evicted, get(), blocks.data(), most));
        return blocks;
    }
    void set_policy(const std::string &name) { check(radixkv_cache_set_policy(get(), name.c_str())); }
    void set_watermarks(std::size_t low, std::size_t high) {
        check(radixkv_cache_set_watermarks(get(), low, high));
    }
    void set_time_to_idle(std::chrono::nanoseconds time) {
        check(radixkv_cache_set_time_to_idle(get(), detail::nanos_or_never(time)));
    }
    // One step of the pending work; whether more is left.
    bool run_once() { return detail::result<bool>(radixkv_cache_run_once, get()); }
    void validate() const { check(radixkv_cache_validate(get())); }
    void settle() { check(radixkv_cache_settle(get())); }
    void set_time(std::uint64_t now) { check(radixkv_cache_set_time(get(), now)); }
    radixkv_stats stats() const {
        radixkv_stats stats;
        check(radixkv_cache_read_stats(get(), &stats, sizeof stats));
        return stats;
    }
    Subscription subscribe(std::size_t batches) const {
        return Subscription(detail::result<radixkv_subscription *>(radixkv_cache_subscribe, get(), batches));
    }
    Batch snapshot() const { return Batch(detail::result<radixkv_batch *>(radixkv_cache_snapshot, get())); }
};

// The settings of a cache that is to be built.
class Builder : public detail::Owned<radixkv_builder, radixkv_builder_free> {
public:
    Builder(std::size_t block_size, std::size_t capacity_blocks)
        : Owned(detail::result<radixkv_builder *>(radixkv_builder_new, block_size, capacity_blocks)) {}

    Builder &policy(const std::string &name) {
        check(radixkv_builder_policy(get(), name.c_str()));
        return *this;
    }
    // Both zero: marks that suit the capacity.
    Builder &background(std::size_t low = 0, std::size_t high = 0) {
        check(radixkv_builder_background(get(), low, high));
        return *this;
    }
    Builder &logical_clock() {
        check(radixkv_builder_logical_clock(get()));
        return *this;
    }
    Builder &time_to_idle(std::chrono::nanoseconds time) {
        check(radixkv_builder_time_to_idle(get(), detail::nanos(time)));
        return *this;
    }
    Builder &growable_to(std::size_t blocks) {
        check(radixkv_builder_growable_to(get(), blocks));
        return *this;
    }
    Builder &shards(std::size_t shards) {
        check(radixkv_builder_shards(get(), shards));
        return *this;
    }
    Builder &external() {
        check(radixkv_builder_external(get()));
        return *this;
    }
    Cache build() {
        return Cache(detail::result<radixkv_cache *>(radixkv_builder_build, get()));
    }
};

} // namespace radixkv

#endif // RADIXKV_HPP
