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

inline std::uint64_t nanos(std::chrono::nanoseconds time) {
    return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

} // namespace detail

// A promise that the blocks of a prefix stay.
class Lease : public detail::Owned<radixkv_lease, radixkv_lease_release> {
public:
    using Owned::Owned;

    Lease clone() const {
        radixkv_lease *second = nullptr;
        check(radixkv_lease_clone(get(), &second));
        return Lease(second);
    }
    std::size_t len_tokens() const {
        std::size_t tokens = 0;
        check(radixkv_lease_len_tokens(get(), &tokens));
        return tokens;
    }
    bool is_invalidated() const {
        bool invalidated = false;
        check(radixkv_lease_is_invalidated(get(), &invalidated));
        return invalidated;
    }
};

// Blocks that their owner fills and then inserts.
class Reservation : public detail::Owned<radixkv_reservation, radixkv_reservation_free> {
public:
    using Owned::Owned;

    std::size_t size() const {
        std::size_t blocks = 0;
        check(radixkv_reservation_len(get(), &blocks));
        return blocks;
    }
    std::vector<std::uint32_t> blocks() const {
        std::vector<std::uint32_t> ids(size());
        check(radixkv_reservation_blocks(get(), ids.data(), ids.size(), nullptr));
        return ids;
    }
    // Moves the first `count` blocks into a new reservation.
    Reservation split(std::size_t count) {
        radixkv_reservation *first = nullptr;
        check(radixkv_reservation_split(get(), count, &first));
        return Reservation(first);
    }
    // Moves all blocks of `more` to the end.
    void append(Reservation &&more) {
        check(radixkv_reservation_append(get(), more.get()));
        more.reset();
    }
    Reservation fork() {
        radixkv_reservation *second = nullptr;
        check(radixkv_reservation_fork(get(), &second));
        return Reservation(second);
    }
};

// The longest cached prefix of a sequence.
struct Match {
    Lease lease;
    std::vector<std::uint32_t> blocks;
    std::size_t tokens = 0;
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
    void clear() { check(radixkv_namespace_clear(get())); }
    void remove() { check(radixkv_namespace_remove(get())); }
};

// One thread's access to a cache.
class Session : public detail::Owned<radixkv_session, radixkv_session_free> {
public:
    Session() = default;
    Session(radixkv_session *session, std::size_t block_size) : Owned(session), block_size_(block_size) {}

    Match match(const Namespace &space, Numbers tokens) {
        Match hit = empty(tokens);
        radixkv_lease *lease = nullptr;
        check(radixkv_session_match(get(), space.get(), tokens.data(), tokens.size(), hit.blocks.data(),
                                    hit.blocks.size(), &hit.tokens, &lease));
        return complete(std::move(hit), lease);
    }
    std::size_t peek(const Namespace &space, Numbers tokens) {
        std::size_t hit = 0;
        check(radixkv_session_peek(get(), space.get(), tokens.data(), tokens.size(), &hit));
        return hit;
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
        radixkv_reservation *reservation = nullptr;
        check(radixkv_session_reserve(get(), payer ? payer->get() : nullptr, blocks, &reservation));
        return Reservation(reservation);
    }
    // For a sequence that runs: served before those that are to be admitted.
    Reservation reserve_to_grow(std::size_t blocks, std::chrono::nanoseconds timeout,
                                const Namespace *payer = nullptr) {
        radixkv_reservation *reservation = nullptr;
        check(radixkv_session_reserve_within(get(), payer ? payer->get() : nullptr, blocks, true,
                                             detail::nanos(timeout), &reservation));
        return Reservation(reservation);
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
        std::size_t covered = 0;
        check(radixkv_session_resume(get(), lease.get(), tokens.data(), tokens.size(), nullptr, 0, &covered));
        return covered;
    }
    void retain(const Lease &lease, std::chrono::nanoseconds time) {
        check(radixkv_session_retain(get(), lease.get(), detail::nanos(time)));
    }

private:
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
        radixkv_event event;
        check(radixkv_batch_event(get(), index, &event));
        return event;
    }
};

// A listener's end of a channel of batches.
class Subscription : public detail::Owned<radixkv_subscription, radixkv_subscription_free> {
public:
    using Owned::Owned;

    // The next batch; false if there is none.
    Batch next() {
        radixkv_batch *batch = nullptr;
        check(radixkv_subscription_next(get(), &batch));
        return Batch(batch);
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
        radixkv_session *session = nullptr;
        check(radixkv_session_new(get(), &session));
        return Session(session, block_size());
    }
    Namespace default_namespace() const {
        radixkv_namespace *space = nullptr;
        check(radixkv_namespace_default(get(), &space));
        return Namespace(space);
    }
    Namespace space(const std::vector<std::string_view> &parts, std::uint32_t keys = RADIXKV_KEYS_TOKENS) const {
        std::vector<const char *> texts;
        std::vector<std::size_t> lengths;
        for (std::string_view part : parts) {
            // An empty view may have no bytes to point to.
            texts.push_back(part.empty() ? "" : part.data());
            lengths.push_back(part.size());
        }
        radixkv_namespace *space = nullptr;
        check(radixkv_namespace_new(get(), texts.data(), lengths.data(), texts.size(), keys, &space));
        return Namespace(space);
    }
    std::size_t block_size() const {
        std::size_t tokens = 0;
        check(radixkv_cache_block_size(get(), &tokens));
        return tokens;
    }
    std::size_t evict(std::size_t blocks) {
        std::size_t freed = 0;
        check(radixkv_cache_evict(get(), blocks, &freed));
        return freed;
    }
    void settle() { check(radixkv_cache_settle(get())); }
    void set_time(std::uint64_t now) { check(radixkv_cache_set_time(get(), now)); }
    radixkv_stats stats() const {
        radixkv_stats stats;
        check(radixkv_cache_read_stats(get(), &stats, sizeof stats));
        return stats;
    }
    Subscription subscribe(std::size_t batches) const {
        radixkv_subscription *subscription = nullptr;
        check(radixkv_cache_subscribe(get(), batches, &subscription));
        return Subscription(subscription);
    }
    Batch snapshot() const {
        radixkv_batch *batch = nullptr;
        check(radixkv_cache_snapshot(get(), &batch));
        return Batch(batch);
    }
};

// The settings of a cache that is to be built.
class Builder : public detail::Owned<radixkv_builder, radixkv_builder_free> {
public:
    Builder(std::size_t block_size, std::size_t capacity_blocks) {
        radixkv_builder *builder = nullptr;
        check(radixkv_builder_new(block_size, capacity_blocks, &builder));
        static_cast<Owned &>(*this) = Owned(builder);
    }

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
    Builder &external() {
        check(radixkv_builder_external(get()));
        return *this;
    }
    Cache build() {
        radixkv_cache *cache = nullptr;
        check(radixkv_builder_build(get(), &cache));
        return Cache(cache);
    }
};

} // namespace radixkv

#endif // RADIXKV_HPP
