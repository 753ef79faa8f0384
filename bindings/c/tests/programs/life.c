/* Each verb once, with the answers that it must give. */
#include "check.h"

static void a_request(void) {
    radixkv_cache *cache = cache_of(16, 8);
    radixkv_session *session;
    radixkv_namespace *space;
    radixkv_lease *hit, *whole, *again;
    radixkv_reservation *own, *chunk, *more;
    uint32_t prompt[100], table[8];
    size_t tokens, dropped, count;
    radixkv_stats stats;

    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_default(cache, &space));
    for (uint32_t i = 0; i < 100; i++) {
        prompt[i] = i;
    }
    OK(radixkv_session_acquire(session, space, prompt, 99, 1, table, 8, &tokens, &hit, &own));
    CHECK(tokens == 0);
    OK(radixkv_reservation_len(own, &count));
    CHECK(count == 7);
    OK(radixkv_reservation_blocks(own, table, 8, &count));
    CHECK(count == 7);

    /* Six blocks are full; the seventh is for what is decoded. */
    OK(radixkv_reservation_split(own, 6, &chunk));
    OK(radixkv_session_insert(session, hit, prompt, 100, chunk, table, 6, &dropped, &whole));
    CHECK(dropped == 4);
    OK(radixkv_lease_len_tokens(whole, &tokens));
    CHECK(tokens == 96);
    OK(radixkv_reservation_len(chunk, &count));
    CHECK(count == 0);

    /* The sequence grows by a block. */
    OK(radixkv_session_reserve(session, NULL, 1, &more));
    OK(radixkv_reservation_append(own, more));
    OK(radixkv_reservation_len(own, &count));
    CHECK(count == 2);
    OK(radixkv_reservation_len(more, &count));
    CHECK(count == 0);

    /* All eight blocks are in use. */
    radixkv_reservation_free(chunk);
    FAILS(EXHAUSTED, radixkv_session_reserve(session, NULL, 1, &chunk));
    CHECK(chunk == NULL);
    radixkv_error error;
    OK(radixkv_last_error(&error));
    CHECK(error.status == RADIXKV_STATUS_EXHAUSTED && error.requested == 1 && error.available == 0);
    CHECK(strstr(error.text, "1 blocks requested") != NULL);
    FAILS(TIMED_OUT, radixkv_session_reserve_within(session, NULL, 1, true, 1000000, &chunk));
    FAILS(TOO_LARGE, radixkv_session_reserve(session, NULL, 9, &chunk));

    stats = stats_of(cache);
    CHECK(stats.protected_blocks == 6 && stats.reserved_blocks == 2 && stats.free_blocks == 0);

    OK(radixkv_lease_clone(whole, &again));
    radixkv_lease_release(hit);
    radixkv_lease_release(whole);
    OK(radixkv_cache_evict(cache, 8, &count));
    CHECK(count == 0);
    radixkv_lease_release(again);
    OK(radixkv_cache_evict(cache, 1, &count));
    CHECK(count == 1);
    OK(radixkv_session_peek(session, space, prompt, 100, &tokens));
    CHECK(tokens == 80);

    radixkv_reservation_free(own);
    radixkv_reservation_free(more);
    OK(radixkv_session_match(session, space, prompt, 100, table, 8, &tokens, &hit));
    CHECK(tokens == 80);
    radixkv_lease_release(hit);
    stats = stats_of(cache);
    CHECK(stats.evictable_blocks == 5 && stats.free_blocks == 3 && stats.evicted_blocks == 1);
    CHECK(stats.capacity_blocks == 8 && stats.hit_tokens == 80 && stats.is_settled == 1);
    OK(radixkv_cache_validate(cache));

    radixkv_namespace_free(space);
    radixkv_cache_free(cache);
    radixkv_session_free(session);
}

static void duplicates_and_resume(void) {
    radixkv_cache *cache = cache_of(2, 8);
    radixkv_session *session;
    radixkv_namespace *space;
    radixkv_lease *miss, *early, *first, *second;
    radixkv_reservation *one, *two;
    uint32_t prompt[] = {1, 2, 3, 4}, a[2], b[2], ids[2];
    size_t tokens, count;
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_default(cache, &space));
    OK(radixkv_session_match(session, space, prompt, 4, NULL, 0, NULL, &miss));
    OK(radixkv_lease_clone(miss, &early));
    OK(radixkv_session_reserve(session, space, 2, &one));
    OK(radixkv_session_reserve(session, space, 2, &two));
    OK(radixkv_session_insert(session, miss, prompt, 4, one, a, 2, NULL, &first));
    OK(radixkv_session_insert(session, miss, prompt, 4, two, b, 2, NULL, &second));
    CHECK(memcmp(a, b, sizeof a) == 0);
    OK(radixkv_reservation_len(one, &count));
    CHECK(count == 0);
    OK(radixkv_reservation_len(two, &count));
    CHECK(count == 2);
    OK(radixkv_session_resume(session, early, prompt, 4, ids, 2, &tokens));
    CHECK(tokens == 4 && memcmp(a, ids, sizeof a) == 0);
    radixkv_reservation_free(one);
    radixkv_reservation_free(two);
    radixkv_lease_release(miss);
    radixkv_lease_release(first);
    radixkv_lease_release(second);
    OK(radixkv_cache_evict(cache, 8, &count));
    CHECK(count == 0);
    radixkv_lease_release(early);
    OK(radixkv_cache_evict(cache, 8, &count));
    CHECK(count == 2);
    radixkv_session_free(session);
    radixkv_namespace_free(space);
    radixkv_cache_free(cache);
}

static void tenants(void) {
    radixkv_cache *cache = cache_of(2, 8);
    radixkv_session *session;
    radixkv_namespace *tenant, *draft;
    radixkv_reservation *blocks, *refused;
    radixkv_lease *lease;
    radixkv_namespace_stats stats;
    radixkv_error error;
    const char *parts[] = {"tenant-7", "lora"};
    const size_t lengths[] = {8, 4};
    uint32_t prompt[] = {1, 2, 3, 4, 5}, keys;
    size_t tokens;
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_new(cache, parts, NULL, 2, RADIXKV_KEYS_TOKENS, &tenant));
    OK(radixkv_namespace_set_quota(tenant, 4, 2, RADIXKV_NO_LIMIT));
    OK(radixkv_session_reserve(session, tenant, 2, &blocks));
    FAILS(OVER_QUOTA, radixkv_session_acquire(session, tenant, prompt, 4, 0, NULL, 0, NULL, &lease,
                                              &refused));
    CHECK(lease == NULL && refused == NULL);
    OK(radixkv_last_error(&error));
    CHECK(error.requested == 2 && error.available == 2 && error.limit == 2);
    OK(radixkv_namespace_read_stats(tenant, &stats, sizeof stats));
    CHECK(stats.reserved_blocks == 2 && stats.cached_blocks == 0 && stats.has_lookups == 1);
    FAILS(NAMESPACE_IN_USE, radixkv_namespace_clear_if_unused(tenant));
    OK(radixkv_session_reserve(session, NULL, 1, &refused));
    radixkv_namespace *another;
    const char *name = "another";
    OK(radixkv_namespace_new(cache, &name, NULL, 1, RADIXKV_KEYS_TOKENS, &another));
    radixkv_reservation *others;
    OK(radixkv_session_reserve(session, another, 1, &others));
    FAILS(OTHER_PAYER, radixkv_reservation_append(blocks, others));
    radixkv_reservation_free(others);
    radixkv_reservation_free(refused);
    radixkv_namespace_free(another);
    radixkv_reservation_free(blocks);
    OK(radixkv_namespace_clear_if_unused(tenant));

    /* The same parts with other keys are another namespace: pairs of tokens are compared. */
    OK(radixkv_namespace_new(cache, parts, lengths, 2, RADIXKV_KEYS_BIGRAMS, &draft));
    OK(radixkv_namespace_keys(draft, &keys));
    CHECK(keys == RADIXKV_KEYS_BIGRAMS);
    lease = cached(session, draft, prompt, 5);
    OK(radixkv_lease_len_tokens(lease, &tokens));
    CHECK(tokens == 4);
    FAILS(SEQUENCE_TOO_SHORT, radixkv_session_resume(session, lease, prompt, 4, NULL, 0, NULL));
    radixkv_lease_release(lease);
    OK(radixkv_namespace_remove(draft));
    OK(radixkv_session_peek(session, draft, prompt, 5, &tokens));
    CHECK(tokens == 0);
    radixkv_namespace_free(tenant);
    radixkv_namespace_free(draft);
    radixkv_session_free(session);
    radixkv_cache_free(cache);
}

static void logical_time_and_policies(void) {
    radixkv_builder *builder;
    radixkv_cache *cache;
    radixkv_session *session;
    radixkv_namespace *space;
    uint32_t old[] = {1, 2}, young[] = {3, 4};
    size_t tokens, count;
    OK(radixkv_builder_new(2, 2, &builder));
    OK(radixkv_builder_policy(builder, "slru:3"));
    OK(radixkv_builder_policy(builder, "lru"));
    OK(radixkv_builder_logical_clock(builder));
    OK(radixkv_builder_time_to_idle(builder, 100));
    OK(radixkv_builder_growable_to(builder, 4));
    OK(radixkv_builder_build(builder, &cache));
    radixkv_builder_free(builder);
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_default(cache, &space));
    OK(radixkv_cache_set_time(cache, 50));
    radixkv_lease_release(cached(session, space, young, 2));
    OK(radixkv_cache_set_time(cache, 10));
    radixkv_lease_release(cached(session, space, old, 2));
    OK(radixkv_cache_evict(cache, 1, &count));
    CHECK(count == 1);
    OK(radixkv_session_peek(session, space, old, 2, &tokens));
    CHECK(tokens == 0);
    OK(radixkv_cache_set_policy(cache, "priority"));
    OK(radixkv_cache_set_time_to_idle(cache, 0));
    OK(radixkv_cache_set_time(cache, 1000));
    OK(radixkv_cache_settle(cache));
    OK(radixkv_session_peek(session, space, young, 2, &tokens));
    CHECK(tokens == 2);
    OK(radixkv_namespace_evict_idle(space, 100, &count));
    CHECK(count == 1);

    uint32_t first;
    OK(radixkv_cache_grow(cache, 2, &first));
    CHECK(first == 2);
    FAILS(CANNOT_GROW, radixkv_cache_grow(cache, 1, &first));
    OK(radixkv_cache_capacity(cache, &count));
    CHECK(count == 4);

    /* The higher priority stays, then the retained prefix, then what was demoted goes. */
    radixkv_lease *low = cached(session, space, young, 2), *high = cached(session, space, old, 2);
    OK(radixkv_session_prioritize(session, high, 80, 0));
    OK(radixkv_session_prioritize(session, low, 1, 50));
    radixkv_lease_release(low);
    radixkv_lease_release(high);
    OK(radixkv_cache_evict(cache, 1, NULL));
    OK(radixkv_session_peek(session, space, old, 2, &tokens));
    CHECK(tokens == 2);
    low = cached(session, space, young, 2);
    OK(radixkv_session_match(session, space, old, 2, NULL, 0, NULL, &high));
    OK(radixkv_session_retain(session, low, 500));
    OK(radixkv_session_demote(session, high));
    radixkv_lease_release(high);
    OK(radixkv_cache_evict(cache, 4, &count));
    CHECK(count == 1);
    OK(radixkv_session_release_retained(session, low));
    radixkv_lease_release(low);
    OK(radixkv_namespace_evict(space, 4, &count));
    CHECK(count == 1);
    radixkv_session_free(session);
    radixkv_namespace_free(space);
    radixkv_cache_free(cache);
}

static void events(void) {
    radixkv_cache *cache = cache_of(2, 8);
    radixkv_session *session;
    radixkv_namespace *space;
    radixkv_subscription *events;
    radixkv_batch *batch, *snapshot;
    radixkv_event event;
    const char *parts[] = {"lora-7"};
    uint32_t prompt[] = {1, 2, 3, 4};
    uint64_t number, lost;
    size_t count;
    bool ended;
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_new(cache, parts, NULL, 1, RADIXKV_KEYS_TOKENS, &space));
    OK(radixkv_cache_subscribe(cache, 64, &events));
    OK(radixkv_subscription_next(events, &batch));
    CHECK(batch == NULL);
    radixkv_lease_release(cached(session, space, prompt, 4));
    OK(radixkv_cache_snapshot(cache, &snapshot));
    OK(radixkv_cache_evict(cache, 1, NULL));
    size_t stored = 0, removed = 0;
    for (;;) {
        OK(radixkv_subscription_next(events, &batch));
        if (batch == NULL) {
            break;
        }
        OK(radixkv_batch_len(batch, &number, &count));
        for (size_t i = 0; i < count; i++) {
            OK(radixkv_batch_event(batch, i, &event));
            CHECK(event.parts_len == 1 && event.parts[0].len == 6);
            CHECK(memcmp(event.parts[0].data, "lora-7", 6) == 0);
            if (event.kind == RADIXKV_EVENT_KIND_STORED) {
                CHECK(event.tokens_len == 4 && memcmp(event.tokens, prompt, sizeof prompt) == 0);
                CHECK(event.start == 0 && event.blocks_len == 2 && !event.has_parent);
                stored++;
            } else {
                CHECK(event.kind == RADIXKV_EVENT_KIND_REMOVED_FOR_CAPACITY);
                CHECK(event.start == 2 && event.blocks_len == 1);
                removed++;
            }
        }
        FAILS(INVALID_ARGUMENT, radixkv_batch_event(batch, count, &event));
        radixkv_batch_free(batch);
    }
    CHECK(stored == 1 && removed == 1);
    OK(radixkv_batch_len(snapshot, &number, &count));
    CHECK(count == 1);
    radixkv_session_free(session);
    radixkv_namespace_free(space);
    radixkv_cache_free(cache);
    /* Events and snapshots outlive the cache. */
    OK(radixkv_batch_event(snapshot, 0, &event));
    CHECK(event.tokens_len == 4);
    radixkv_batch_free(snapshot);
    OK(radixkv_subscription_next(events, &batch));
    CHECK(batch == NULL);
    OK(radixkv_subscription_state(events, &lost, &ended));
    CHECK(lost == 0 && ended);
    radixkv_subscription_free(events);
}

/* What is evicted stays until it was copied; what was only looked at is no more recent than before. */
static void evicted_blocks(void) {
    radixkv_cache *cache = cache_of(2, 4);
    radixkv_session *session;
    radixkv_namespace *space;
    radixkv_evicted *evicted;
    radixkv_event event;
    radixkv_lease *looked;
    const char *parts[] = {"tenant"};
    uint32_t old[] = {1, 2, 3, 4}, young[] = {1, 2, 5, 6}, ids[2];
    size_t tokens, sequences;
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_new(cache, parts, NULL, 1, RADIXKV_KEYS_TOKENS, &space));
    radixkv_lease_release(cached(session, space, old, 4));
    radixkv_lease_release(cached(session, space, young, 4));
    OK(radixkv_session_match_untouched(session, space, old, 4, ids, 2, &tokens, &looked));
    CHECK(tokens == 4);
    radixkv_lease_release(looked);
    OK(radixkv_cache_evict_into(cache, 1, &sequences, &evicted));
    CHECK(sequences == 1);
    OK(radixkv_evicted_get(evicted, 0, &event));
    CHECK(event.kind == RADIXKV_EVENT_KIND_REMOVED_FOR_CAPACITY && event.start == 2);
    CHECK(event.tokens_len == 4 && memcmp(event.tokens, old, sizeof old) == 0);
    CHECK(event.blocks_len == 1 && event.blocks[0] == ids[1]);
    CHECK(event.parts_len == 1 && event.parts[0].len == 6 && memcmp(event.parts[0].data, "tenant", 6) == 0);
    FAILS(INVALID_ARGUMENT, radixkv_evicted_get(evicted, 1, &event));
    CHECK(stats_of(cache).reserved_blocks == 1);
    radixkv_evicted_free(evicted);
    CHECK(stats_of(cache).reserved_blocks == 0);
    OK(radixkv_session_peek(session, space, old, 4, &tokens));
    CHECK(tokens == 2);
    OK(radixkv_cache_clear(cache));
    OK(radixkv_cache_evict_into(cache, 4, &sequences, &evicted));
    CHECK(sequences == 0);
    radixkv_evicted_free(evicted);
    radixkv_session_free(session);
    radixkv_namespace_free(space);
    radixkv_cache_free(cache);
}

static void blocks_of_the_engine(void) {
    radixkv_builder *builder;
    radixkv_cache *cache;
    radixkv_session *session;
    radixkv_namespace *space;
    radixkv_reservation *filled;
    radixkv_lease *miss, *whole;
    uint32_t prompt[] = {1, 2, 3, 4, 5, 6}, ids[] = {5, 2, 7}, table[3], free_ids[2];
    size_t taken, total = 0;
    OK(radixkv_builder_new(2, 8, &builder));
    OK(radixkv_builder_external(builder));
    OK(radixkv_builder_build(builder, &cache));
    radixkv_builder_free(builder);
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_default(cache, &space));
    FAILS(EXTERNAL_POOL, radixkv_session_reserve(session, NULL, 1, &filled));
    OK(radixkv_cache_adopt(cache, ids, 3, &filled));
    radixkv_reservation *twice;
    FAILS(BLOCK_HELD, radixkv_cache_adopt(cache, ids + 1, 1, &twice));
    uint32_t beyond = 8;
    FAILS(BLOCK_OUT_OF_RANGE, radixkv_cache_adopt(cache, &beyond, 1, &twice));
    OK(radixkv_session_match(session, space, prompt, 6, NULL, 0, NULL, &miss));
    OK(radixkv_session_insert(session, miss, prompt, 6, filled, table, 3, NULL, &whole));
    CHECK(memcmp(ids, table, sizeof ids) == 0);
    radixkv_lease_release(miss);
    radixkv_lease_release(whole);
    OK(radixkv_cache_evict(cache, 8, &taken));
    CHECK(taken == 3);
    /* Three ids come back through a buffer of two. The cache still holds the third one. */
    uint32_t seen = 0;
    do {
        OK(radixkv_cache_take_evicted(cache, free_ids, 2, &taken));
        for (size_t i = 0; i < taken; i++) {
            seen |= 1u << free_ids[i];
        }
        total += taken;
        for (size_t i = 0; i < 3; i++) {
            if (!(seen >> ids[i] & 1)) {
                FAILS(BLOCK_HELD, radixkv_cache_adopt(cache, ids + i, 1, &twice));
            }
        }
    } while (taken == 2);
    CHECK(total == 3 && seen == (1u << 5 | 1u << 2 | 1u << 7));
    radixkv_reservation_free(filled);
    radixkv_namespace_free(space);
    radixkv_session_free(session);
    radixkv_cache_free(cache);
}

static void partial_forks_and_weak_leases(void) {
    radixkv_cache *cache = cache_of(4, 8);
    radixkv_session *session;
    radixkv_namespace *space;
    radixkv_partial_hit *partial;
    radixkv_weak_lease *weak;
    radixkv_lease *lease, *upgraded;
    radixkv_reservation *one, *two, *fresh;
    radixkv_copy *copy;
    uint32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8}, other[] = {1, 2, 3, 4, 5, 6, 9, 9};
    uint32_t block, source, destination;
    size_t tokens, count;
    bool invalid;
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_default(cache, &space));
    radixkv_lease_release(cached(session, space, prompt, 8));

    OK(radixkv_session_match(session, space, other, 8, NULL, 0, &tokens, &lease));
    CHECK(tokens == 4);
    OK(radixkv_session_match_partial(session, lease, other, 8, 1, &block, &tokens, &partial));
    CHECK(partial != NULL && tokens == 2);
    radixkv_partial_hit_free(partial);
    OK(radixkv_session_match_partial(session, lease, other, 8, 3, &block, &tokens, &partial));
    CHECK(partial == NULL);

    OK(radixkv_session_reserve(session, NULL, 2, &one));
    OK(radixkv_reservation_fork(one, &two));
    OK(radixkv_reservation_split(two, 1, &fresh));
    FAILS(SHARED_BLOCK,
          radixkv_session_insert(session, lease, other, 8, fresh, NULL, 0, NULL, &upgraded));
    OK(radixkv_reservation_append(two, fresh));
    radixkv_reservation_free(fresh);
    OK(radixkv_session_reserve(session, NULL, 1, &fresh));
    OK(radixkv_reservation_make_unique(two, 0, fresh, &source, &destination, &copy));
    CHECK(copy != NULL && source != destination);
    radixkv_copy_free(copy);
    FAILS(INVALID_ARGUMENT, radixkv_reservation_make_unique(two, 1, fresh, NULL, NULL, &copy));
    FAILS(INVALID_ARGUMENT, radixkv_reservation_make_unique(two, 2, fresh, NULL, NULL, &copy));
    OK(radixkv_reservation_make_unique(two, 0, fresh, NULL, NULL, &copy));
    CHECK(copy == NULL);
    radixkv_reservation_free(one);
    radixkv_reservation_free(two);
    radixkv_reservation_free(fresh);

    OK(radixkv_lease_downgrade(lease, &weak));
    OK(radixkv_session_upgrade(session, weak, &upgraded));
    CHECK(upgraded != NULL);
    radixkv_lease_release(upgraded);
    OK(radixkv_session_match(session, space, other, 4, &block, 1, &tokens, &upgraded));
    CHECK(tokens == 4);
    OK(radixkv_cache_invalidate(cache, &block, 1, &count));
    CHECK(count == 2);
    OK(radixkv_lease_is_invalidated(lease, &invalid));
    CHECK(invalid);
    radixkv_lease_release(upgraded);
    radixkv_lease_release(lease);
    OK(radixkv_session_upgrade(session, weak, &upgraded));
    CHECK(upgraded == NULL);
    radixkv_weak_lease_free(weak);
    radixkv_session_free(session);
    radixkv_namespace_free(space);
    radixkv_cache_free(cache);
}

int main(void) {
    CHECK(strcmp(radixkv_version(), "") != 0);
    CHECK(strcmp(radixkv_status_text(RADIXKV_STATUS_OK), "done") == 0);
    CHECK(strcmp(radixkv_status_text(1234), "unknown status") == 0);
    a_request();
    duplicates_and_resume();
    tenants();
    logical_time_and_policies();
    events();
    evicted_blocks();
    blocks_of_the_engine();
    partial_forks_and_weak_leases();
    puts("8 passed, 0 failed");
    return 0;
}
