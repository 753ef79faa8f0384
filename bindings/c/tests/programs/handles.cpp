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
    start.blocks.append(session.reserve_to_grow(2, 1s, nullptr));
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

int main() {
    a_request();
    errors_are_thrown_and_lose_nothing();
    a_lease_in_a_thread_local_variable();
    std::puts("3 passed, 0 failed");
}
