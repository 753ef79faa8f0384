// The C++ handles: what they give, what they throw, and that they free themselves.
#include "check.h"

#include <radixkv.hpp>

#include <array>
#include <thread>
#include <type_traits>

using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<radixkv::Lease>);
static_assert(std::is_nothrow_move_constructible_v<radixkv::Reservation>);

static void a_request() {
    radixkv::Cache cache = radixkv::Builder(16, 64).policy("slru:3").background().build();
    radixkv::Session session = cache.session();
    radixkv::Namespace space = cache.space({"tenant-7", "lora-3"});
    radixkv::Subscription events = cache.subscribe(16);
    std::vector<std::uint32_t> prompt(100, 7);
    radixkv::Acquired start = session.acquire(space, {prompt.data(), 99}, 1);
    CHECK(start.hit.tokens == 0 && start.hit.blocks.empty() && start.blocks.size() == 7);
    radixkv::Reservation full = start.blocks.split(6);
    radixkv::Inserted inserted = session.insert(start.hit.lease, prompt, full);
    CHECK(inserted.blocks.size() == 6 && inserted.dropped_tokens == 4 && full.size() == 0);
    CHECK(inserted.lease.len_tokens() == 96 && !inserted.lease.is_invalidated());
    start.blocks.append(session.reserve_within(2, true, 1s));
    CHECK(start.blocks.blocks().size() == 3);

    radixkv::Match again = session.match(space, prompt);
    CHECK(again.tokens == 96 && again.blocks == inserted.blocks);
    CHECK(cache.stats().hit_tokens == 96);
    radixkv::Lease second = again.lease.clone();
    CHECK(session.resume(second, prompt) == 96 && session.peek(space, prompt) == 96);
    session.retain(second, 1h);

    radixkv::Batch batch = events.next();
    CHECK(batch && batch.size() == 1 && batch[0].kind == RADIXKV_EVENT_KIND_STORED);
    CHECK(batch[0].parts_len == 2 && batch[0].tokens_len == 96);
    CHECK(!events.next() && events.lost_batches() == 0);
    CHECK(cache.snapshot().size() == 1);
}

static void errors_are_thrown_and_lose_nothing() {
    radixkv::Cache cache = radixkv::Builder(4, 4).logical_clock().build();
    radixkv::Session session = cache.session();
    radixkv::Namespace space = cache.default_namespace();
    const std::uint32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8};
    radixkv::Acquired start = session.acquire(space, prompt, 0);
    try {
        session.insert(start.hit.lease, {prompt, 4}, start.blocks);
        CHECK(!"inserted");
    } catch (const radixkv::Error &error) {
        CHECK(error.status == RADIXKV_STATUS_BLOCK_COUNT && error.requested == 1 && error.available == 2);
        CHECK(std::string(error.what()).find("2 blocks given") != std::string::npos);
    }
    CHECK(start.blocks.size() == 2);
    try {
        session.acquire_within(space, std::array<std::uint32_t, 12>{}, 0, 1ms);
        CHECK(!"acquired");
    } catch (const radixkv::Error &error) {
        CHECK(error.status == RADIXKV_STATUS_TIMED_OUT && error.requested == 3);
    }
    try {
        radixkv::Builder(0, 4).build();
        CHECK(!"built");
    } catch (const std::runtime_error &error) {
        CHECK(std::string(error.what()).find("block size") != std::string::npos);
    }
    space.set_quota(std::nullopt, 2);
    CHECK(space.stats().reserved_blocks == 2);
    CHECK(cache.evict(4) == 0);
}

static void prefixes() {
    radixkv::Cache cache = radixkv::Builder(4, 8).policy("priority").logical_clock().growable_to(12).shards(1).build();
    radixkv::Session session = cache.session();
    radixkv::Namespace space = cache.default_namespace();
    const std::vector<std::uint32_t> prompt{1, 2, 3, 4, 5, 6, 7, 8}, other{1, 2, 3, 4, 5, 6, 9, 9};
    radixkv::Acquired start = session.acquire(space, prompt, 0);
    radixkv::Lease lease = session.insert(start.hit.lease, prompt, start.blocks).lease;
    radixkv::Match hit = session.match_untouched(space, other);
    CHECK(hit.tokens == 4 && session.match_partial(hit.lease, other, 2).tokens == 2);
    CHECK(!session.match_partial(hit.lease, other, 3));
    session.prioritize(lease, 80, 1s);
    session.demote(hit.lease);
    radixkv::WeakLease weak = lease.downgrade();
    CHECK(session.upgrade(weak).len_tokens() == 8);
    session.retain(lease, 1s);
    lease.reset();
    CHECK(cache.evict(8) == 0);
    session.release_retained(session.upgrade(weak));
    hit.lease.reset();
    start.hit.lease.reset();
    {
        radixkv::Evicted evicted = cache.evict_into(1);
        CHECK(evicted.size() == 1 && evicted[0].start == 4 && evicted[0].tokens_len == 8);
        CHECK(cache.free_blocks() == 6);
    }
    CHECK(cache.free_blocks() == 7 && !session.upgrade(weak));
    CHECK(cache.invalidate(session.match(space, prompt).blocks) == 1);
    CHECK(cache.grow(4) == 8 && cache.capacity() == 12 && space.keys() == RADIXKV_KEYS_TOKENS);
    CHECK(space.evict(1) == 0 && space.evict_idle(1s) == 0);
    space.clear_if_unused();

    radixkv::Reservation one = session.reserve(1), fresh = session.reserve(1, &space);
    radixkv::Reservation two = one.fork();
    radixkv::PendingCopy copy = two.make_unique(0, fresh);
    CHECK(copy && copy.source == one.blocks()[0] && copy.destination == two.blocks()[0]);
    CHECK(!two.make_unique(0, one));
    cache.set_policy("lru");
    cache.set_time_to_idle(1s);
    while (cache.run_once()) {
    }
    cache.clear();
    cache.validate();
}

static void blocks_of_the_engine() {
    radixkv::Cache cache = radixkv::Builder(4, 8).external().build();
    radixkv::Session session = cache.session();
    radixkv::Namespace space = cache.default_namespace();
    const std::vector<std::uint32_t> prompt{1, 2, 3, 4, 5, 6, 7, 8};
    radixkv::Reservation filled = cache.adopt(std::array<std::uint32_t, 2>{5, 2});
    radixkv::Inserted inserted = session.insert(session.match(space, prompt).lease, prompt, filled);
    CHECK((inserted.blocks == std::vector<std::uint32_t>{5, 2}));
    inserted.lease.reset();
    CHECK(cache.evict(1) == 1 && cache.take_evicted(8) == std::vector<std::uint32_t>{2});
    CHECK(cache.take_evicted(8).empty());
}

// A lease that its thread frees as it ends, after the last errors of the thread are gone.
static void a_lease_in_a_thread_local_variable() {
    radixkv::Cache cache = radixkv::Builder(4, 4).build();
    std::thread([&cache] {
        thread_local radixkv::Lease kept;
        radixkv::Session session = cache.session();
        const std::uint32_t prompt[] = {1, 2, 3, 4};
        radixkv::Namespace space = cache.default_namespace();
        radixkv::Acquired start = session.acquire(space, prompt, 0);
        kept = session.insert(start.hit.lease, prompt, start.blocks).lease;
        FAILS(NULL_POINTER, radixkv_cache_settle(nullptr));
    }).join();
    CHECK(cache.evict(4) == 1);
}

static void a_time_that_is_over_is_not_without_end() {
    radixkv::Cache cache = radixkv::Builder(4, 8).policy("priority").logical_clock().build();
    radixkv::Session session = cache.session();
    radixkv::Namespace space = cache.default_namespace();
    const std::vector<std::uint32_t> old{1, 2, 3, 4}, recent{5, 6, 7, 8};
    for (const auto &prompt : {old, recent}) {
        radixkv::Acquired start = session.acquire(space, prompt, 0);
        radixkv::Lease lease = session.insert(start.hit.lease, prompt, start.blocks).lease;
        if (prompt == old) session.prioritize(lease, 80, -1s);
        cache.set_time(prompt == old ? 10 : 20);
    }
    CHECK(cache.evict(1) == 1);
    CHECK(session.peek(space, old) == 0 && session.peek(space, recent) == 4);
}

int main() {
    a_request();
    errors_are_thrown_and_lose_nothing();
    prefixes();
    blocks_of_the_engine();
    a_lease_in_a_thread_local_variable();
    a_time_that_is_over_is_not_without_end();
    std::puts("6 passed, 0 failed");
}
