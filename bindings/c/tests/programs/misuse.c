/* Misuse is refused with a status, and nothing has changed. */
#include "check.h"

#include <stdint.h>

static radixkv_cache *cache, *foreign;
static radixkv_session *session, *foreign_session;
static radixkv_namespace *space, *foreign_space;
static radixkv_lease *lease, *foreign_lease;
static radixkv_weak_lease *foreign_weak;
static radixkv_reservation *blocks, *foreign_blocks;
static const uint32_t tokens[] = {1, 2, 3, 4, 5};

static void open_both(void) {
    cache = cache_of(2, 8);
    foreign = cache_of(2, 8);
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_session_new(foreign, &foreign_session));
    OK(radixkv_namespace_default(cache, &space));
    OK(radixkv_namespace_default(foreign, &foreign_space));
    lease = cached(session, space, tokens, 4);
    foreign_lease = cached(foreign_session, foreign_space, tokens, 4);
    OK(radixkv_lease_downgrade(foreign_lease, &foreign_weak));
    OK(radixkv_session_reserve(session, NULL, 1, &blocks));
    OK(radixkv_session_reserve(foreign_session, NULL, 1, &foreign_blocks));
}

static void close_both(void) {
    radixkv_reservation_free(blocks);
    radixkv_reservation_free(foreign_blocks);
    radixkv_lease_release(lease);
    radixkv_lease_release(foreign_lease);
    radixkv_weak_lease_free(foreign_weak);
    radixkv_namespace_free(space);
    radixkv_namespace_free(foreign_space);
    radixkv_session_free(session);
    radixkv_session_free(foreign_session);
    radixkv_cache_free(cache);
    radixkv_cache_free(foreign);
}

static void null_arguments(void) {
    radixkv_builder *builder;
    radixkv_lease *new_lease = lease;
    radixkv_reservation *new_blocks;
    radixkv_subscription *events;
    radixkv_batch *batch;
    radixkv_stats stats;
    radixkv_namespace_stats space_stats;
    uint32_t id;
    size_t n;
    bool flag;

    FAILS(NULL_POINTER, radixkv_last_error(NULL));
    FAILS(NULL_POINTER, radixkv_builder_new(16, 8, NULL));
    OK(radixkv_builder_new(16, 8, &builder));
    FAILS(NULL_POINTER, radixkv_builder_policy(NULL, "lru"));
    FAILS(NULL_POINTER, radixkv_builder_policy(builder, NULL));
    FAILS(NULL_POINTER, radixkv_builder_background(NULL, 1, 2));
    FAILS(NULL_POINTER, radixkv_builder_logical_clock(NULL));
    FAILS(NULL_POINTER, radixkv_builder_time_to_idle(NULL, 1));
    FAILS(NULL_POINTER, radixkv_builder_growable_to(NULL, 1));
    FAILS(NULL_POINTER, radixkv_builder_shards(NULL, 1));
    FAILS(NULL_POINTER, radixkv_builder_external(NULL));
    FAILS(NULL_POINTER, radixkv_builder_build(builder, NULL));
    radixkv_cache *no_cache = cache;
    FAILS(NULL_POINTER, radixkv_builder_build(NULL, &no_cache));
    CHECK(no_cache == NULL);
    radixkv_builder_free(builder);

    FAILS(NULL_POINTER, radixkv_cache_block_size(NULL, &n));
    FAILS(NULL_POINTER, radixkv_cache_block_size(cache, NULL));
    FAILS(NULL_POINTER, radixkv_cache_capacity(NULL, &n));
    FAILS(NULL_POINTER, radixkv_cache_free_blocks(NULL, &n));
    FAILS(NULL_POINTER, radixkv_cache_evict(NULL, 1, &n));
    FAILS(NULL_POINTER, radixkv_cache_settle(NULL));
    FAILS(NULL_POINTER, radixkv_cache_run_once(NULL, &flag));
    FAILS(NULL_POINTER, radixkv_cache_clear(NULL));
    FAILS(NULL_POINTER, radixkv_cache_invalidate(NULL, &id, 1, &n));
    FAILS(NULL_POINTER, radixkv_cache_invalidate(cache, NULL, 1, &n));
    FAILS(NULL_POINTER, radixkv_cache_set_time(NULL, 1));
    FAILS(NULL_POINTER, radixkv_cache_grow(NULL, 1, &id));
    FAILS(NULL_POINTER, radixkv_cache_validate(NULL));
    FAILS(NULL_POINTER, radixkv_cache_set_policy(NULL, "lru"));
    FAILS(NULL_POINTER, radixkv_cache_set_policy(cache, NULL));
    FAILS(NULL_POINTER, radixkv_cache_set_watermarks(NULL, 1, 2));
    FAILS(NULL_POINTER, radixkv_cache_set_time_to_idle(NULL, 1));
    FAILS(NULL_POINTER, radixkv_cache_read_stats(NULL, &stats, sizeof stats));
    FAILS(NULL_POINTER, radixkv_cache_read_stats(cache, NULL, sizeof stats));
    FAILS(NULL_POINTER, radixkv_cache_adopt(NULL, &id, 1, &new_blocks));
    FAILS(NULL_POINTER, radixkv_cache_adopt(cache, NULL, 1, &new_blocks));
    FAILS(NULL_POINTER, radixkv_cache_take_evicted(NULL, &id, 1, &n));
    FAILS(NULL_POINTER, radixkv_cache_take_evicted(cache, &id, 1, NULL));
    FAILS(NULL_POINTER, radixkv_cache_subscribe(NULL, 1, &events));
    FAILS(NULL_POINTER, radixkv_cache_subscribe(cache, 1, NULL));
    FAILS(NULL_POINTER, radixkv_cache_snapshot(NULL, &batch));
    FAILS(NULL_POINTER, radixkv_cache_snapshot(cache, NULL));
    radixkv_evicted *evicted;
    FAILS(NULL_POINTER, radixkv_cache_evict_into(NULL, 1, &n, &evicted));
    FAILS(NULL_POINTER, radixkv_cache_evict_into(cache, 1, &n, NULL));
    FAILS(NULL_POINTER, radixkv_evicted_get(NULL, 0, &(radixkv_event){0}));
    FAILS(NULL_POINTER, radixkv_subscription_next(NULL, &batch));
    FAILS(NULL_POINTER, radixkv_subscription_state(NULL, NULL, NULL));
    FAILS(NULL_POINTER, radixkv_batch_len(NULL, NULL, NULL));
    radixkv_event event;
    FAILS(NULL_POINTER, radixkv_batch_event(NULL, 0, &event));

    radixkv_namespace *new_space;
    const char *name = NULL;
    FAILS(NULL_POINTER, radixkv_namespace_new(NULL, NULL, NULL, 0, RADIXKV_KEYS_TOKENS, &new_space));
    FAILS(NULL_POINTER, radixkv_namespace_new(cache, NULL, NULL, 1, RADIXKV_KEYS_TOKENS, &new_space));
    FAILS(NULL_POINTER, radixkv_namespace_new(cache, &name, NULL, 1, RADIXKV_KEYS_TOKENS, &new_space));
    FAILS(NULL_POINTER, radixkv_namespace_new(cache, NULL, NULL, 0, RADIXKV_KEYS_TOKENS, NULL));
    FAILS(NULL_POINTER, radixkv_namespace_default(NULL, &new_space));
    FAILS(NULL_POINTER, radixkv_namespace_default(cache, NULL));
    FAILS(NULL_POINTER, radixkv_namespace_set_quota(NULL, 1, 1, 1));
    FAILS(NULL_POINTER, radixkv_namespace_clear(NULL));
    FAILS(NULL_POINTER, radixkv_namespace_clear_if_unused(NULL));
    FAILS(NULL_POINTER, radixkv_namespace_remove(NULL));
    FAILS(NULL_POINTER, radixkv_namespace_evict(NULL, 1, &n));
    FAILS(NULL_POINTER, radixkv_namespace_evict_idle(NULL, 1, &n));
    FAILS(NULL_POINTER, radixkv_namespace_keys(NULL, &id));
    FAILS(NULL_POINTER, radixkv_namespace_keys(space, NULL));
    FAILS(NULL_POINTER, radixkv_namespace_read_stats(NULL, &space_stats, sizeof space_stats));
    FAILS(NULL_POINTER, radixkv_namespace_read_stats(space, NULL, sizeof space_stats));

    FAILS(NULL_POINTER, radixkv_session_new(cache, NULL));
    radixkv_session *no_session;
    FAILS(NULL_POINTER, radixkv_session_new(NULL, &no_session));
    CHECK(no_session == NULL);
    FAILS(NULL_POINTER, radixkv_session_match(NULL, space, tokens, 4, NULL, 0, &n, &new_lease));
    CHECK(new_lease == NULL);
    FAILS(NULL_POINTER, radixkv_session_match(session, NULL, tokens, 4, NULL, 0, &n, &new_lease));
    FAILS(NULL_POINTER, radixkv_session_match(session, space, NULL, 4, NULL, 0, &n, &new_lease));
    FAILS(NULL_POINTER, radixkv_session_match(session, space, tokens, 4, NULL, 2, &n, &new_lease));
    FAILS(NULL_POINTER, radixkv_session_match(session, space, tokens, 4, NULL, 0, &n, NULL));
    FAILS(NULL_POINTER, radixkv_session_peek(NULL, space, tokens, 4, &n));
    FAILS(NULL_POINTER, radixkv_session_peek(session, NULL, tokens, 4, &n));
    FAILS(NULL_POINTER, radixkv_session_peek(session, space, NULL, 4, &n));
    FAILS(NULL_POINTER, radixkv_session_peek(session, space, tokens, 4, NULL));
    FAILS(NULL_POINTER,
          radixkv_session_acquire(NULL, space, tokens, 4, 0, NULL, 0, &n, &new_lease, &new_blocks));
    FAILS(NULL_POINTER,
          radixkv_session_acquire(session, NULL, tokens, 4, 0, NULL, 0, &n, &new_lease, &new_blocks));
    FAILS(NULL_POINTER,
          radixkv_session_acquire(session, space, NULL, 4, 0, NULL, 0, &n, &new_lease, &new_blocks));
    FAILS(NULL_POINTER,
          radixkv_session_acquire(session, space, tokens, 4, 0, NULL, 0, &n, NULL, &new_blocks));
    new_lease = lease;
    FAILS(NULL_POINTER,
          radixkv_session_acquire(session, space, tokens, 4, 0, NULL, 0, &n, &new_lease, NULL));
    CHECK(new_lease == NULL);
    FAILS(NULL_POINTER, radixkv_session_acquire_within(NULL, space, tokens, 4, 0, 1, NULL, 0, &n,
                                                       &new_lease, &new_blocks));
    FAILS(NULL_POINTER, radixkv_session_reserve(NULL, NULL, 1, &new_blocks));
    FAILS(NULL_POINTER, radixkv_session_reserve(session, NULL, 1, NULL));
    FAILS(NULL_POINTER, radixkv_session_reserve_within(NULL, NULL, 1, false, 1, &new_blocks));
    FAILS(NULL_POINTER,
          radixkv_session_insert(NULL, lease, tokens, 4, blocks, NULL, 0, &n, &new_lease));
    FAILS(NULL_POINTER,
          radixkv_session_insert(session, NULL, tokens, 4, blocks, NULL, 0, &n, &new_lease));
    FAILS(NULL_POINTER,
          radixkv_session_insert(session, lease, NULL, 4, blocks, NULL, 0, &n, &new_lease));
    FAILS(NULL_POINTER, radixkv_session_insert(session, lease, tokens, 4, NULL, NULL, 0, &n, &new_lease));
    FAILS(NULL_POINTER, radixkv_session_insert(session, lease, tokens, 4, blocks, NULL, 0, &n, NULL));
    FAILS(NULL_POINTER, radixkv_session_resume(NULL, lease, tokens, 4, NULL, 0, &n));
    FAILS(NULL_POINTER, radixkv_session_resume(session, NULL, tokens, 4, NULL, 0, &n));
    radixkv_partial_hit *hit;
    FAILS(NULL_POINTER, radixkv_session_match_partial(NULL, lease, tokens, 4, 1, &id, &n, &hit));
    FAILS(NULL_POINTER, radixkv_session_match_partial(session, NULL, tokens, 4, 1, &id, &n, &hit));
    FAILS(NULL_POINTER, radixkv_session_match_partial(session, lease, tokens, 4, 1, NULL, &n, &hit));
    FAILS(NULL_POINTER, radixkv_session_match_partial(session, lease, tokens, 4, 1, &id, NULL, &hit));
    FAILS(NULL_POINTER, radixkv_session_match_partial(session, lease, tokens, 4, 1, &id, &n, NULL));
    FAILS(NULL_POINTER, radixkv_session_retain(NULL, lease, 1));
    FAILS(NULL_POINTER, radixkv_session_retain(session, NULL, 1));
    FAILS(NULL_POINTER, radixkv_session_release_retained(session, NULL));
    FAILS(NULL_POINTER, radixkv_session_prioritize(session, NULL, 1, 1));
    FAILS(NULL_POINTER, radixkv_session_demote(session, NULL));
    radixkv_weak_lease *weak;
    FAILS(NULL_POINTER, radixkv_lease_downgrade(NULL, &weak));
    FAILS(NULL_POINTER, radixkv_lease_downgrade(lease, NULL));
    FAILS(NULL_POINTER, radixkv_session_upgrade(session, NULL, &new_lease));
    FAILS(NULL_POINTER, radixkv_lease_clone(NULL, &new_lease));
    FAILS(NULL_POINTER, radixkv_lease_clone(lease, NULL));
    FAILS(NULL_POINTER, radixkv_lease_len_tokens(NULL, &n));
    FAILS(NULL_POINTER, radixkv_lease_len_tokens(lease, NULL));
    FAILS(NULL_POINTER, radixkv_lease_is_invalidated(NULL, &flag));
    FAILS(NULL_POINTER, radixkv_reservation_len(NULL, &n));
    FAILS(NULL_POINTER, radixkv_reservation_blocks(NULL, &id, 1, &n));
    FAILS(NULL_POINTER, radixkv_reservation_blocks(blocks, NULL, 0, &n));
    FAILS(NULL_POINTER, radixkv_reservation_split(NULL, 1, &new_blocks));
    FAILS(NULL_POINTER, radixkv_reservation_append(NULL, blocks));
    FAILS(NULL_POINTER, radixkv_reservation_append(blocks, NULL));
    FAILS(NULL_POINTER, radixkv_reservation_fork(NULL, &new_blocks));
    radixkv_copy *copy;
    FAILS(NULL_POINTER, radixkv_reservation_make_unique(NULL, 0, blocks, NULL, NULL, &copy));
    FAILS(NULL_POINTER, radixkv_reservation_make_unique(blocks, 0, NULL, NULL, NULL, &copy));

    radixkv_builder_free(NULL);
    radixkv_cache_free(NULL);
    radixkv_session_free(NULL);
    radixkv_namespace_free(NULL);
    radixkv_lease_release(NULL);
    radixkv_weak_lease_free(NULL);
    radixkv_partial_hit_free(NULL);
    radixkv_reservation_free(NULL);
    radixkv_copy_free(NULL);
    radixkv_subscription_free(NULL);
    radixkv_batch_free(NULL);
    radixkv_evicted_free(NULL);
}

static void handles_of_another_cache(void) {
    radixkv_lease *new_lease;
    radixkv_reservation *new_blocks;
    radixkv_partial_hit *hit;
    radixkv_copy *copy;
    radixkv_error error;
    uint32_t id;
    size_t n;
    FAILS(OTHER_CACHE, radixkv_session_match(session, foreign_space, tokens, 4, NULL, 0, &n, &new_lease));
    OK(radixkv_last_error(&error));
    CHECK(strcmp(error.text, "space belongs to another cache") == 0);
    FAILS(OTHER_CACHE,
          radixkv_session_match_untouched(session, foreign_space, tokens, 4, NULL, 0, &n, &new_lease));
    FAILS(OTHER_CACHE, radixkv_session_peek(session, foreign_space, tokens, 4, &n));
    FAILS(OTHER_CACHE, radixkv_session_acquire(session, foreign_space, tokens, 4, 0, NULL, 0, &n,
                                               &new_lease, &new_blocks));
    FAILS(OTHER_CACHE, radixkv_session_reserve(session, foreign_space, 1, &new_blocks));
    FAILS(OTHER_CACHE,
          radixkv_session_insert(session, foreign_lease, tokens, 4, blocks, NULL, 0, &n, &new_lease));
    FAILS(OTHER_CACHE,
          radixkv_session_insert(session, lease, tokens, 4, foreign_blocks, NULL, 0, &n, &new_lease));
    FAILS(OTHER_CACHE, radixkv_session_resume(session, foreign_lease, tokens, 4, NULL, 0, &n));
    FAILS(OTHER_CACHE, radixkv_session_match_partial(session, foreign_lease, tokens, 4, 1, &id, &n, &hit));
    FAILS(OTHER_CACHE, radixkv_session_retain(session, foreign_lease, 1));
    FAILS(OTHER_CACHE, radixkv_session_release_retained(session, foreign_lease));
    FAILS(OTHER_CACHE, radixkv_session_prioritize(session, foreign_lease, 1, 1));
    FAILS(OTHER_CACHE, radixkv_session_demote(session, foreign_lease));
    FAILS(OTHER_CACHE, radixkv_session_upgrade(session, foreign_weak, &new_lease));
    FAILS(OTHER_CACHE, radixkv_reservation_append(blocks, foreign_blocks));
    FAILS(OTHER_CACHE, radixkv_reservation_make_unique(blocks, 0, foreign_blocks, NULL, NULL, &copy));
}

static void buffers_and_sizes(void) {
    radixkv_lease *new_lease;
    radixkv_reservation *new_blocks;
    radixkv_error error;
    uint32_t table[8] = {77, 77, 77, 77, 77, 77, 77, 77};
    size_t n = 77;

    /* One element too few, whatever would match. */
    FAILS(BUFFER_TOO_SHORT, radixkv_session_match(session, space, tokens, 5, table, 1, &n, &new_lease));
    CHECK(new_lease == NULL && n == 77 && table[0] == 77);
    OK(radixkv_last_error(&error));
    CHECK(error.requested == 2 && error.available == 1);
    FAILS(BUFFER_TOO_SHORT, radixkv_session_acquire(session, space, tokens, 5, 0, table, 1, &n, &new_lease,
                                                    &new_blocks));
    FAILS(BUFFER_TOO_SHORT, radixkv_session_resume(session, lease, tokens, 5, table, 1, &n));
    FAILS(BUFFER_TOO_SHORT, radixkv_reservation_blocks(blocks, table, 0, &n));
    uint32_t longer[] = {1, 2, 3, 4, 5, 6};
    FAILS(BUFFER_TOO_SHORT,
          radixkv_session_insert(session, lease, longer, 6, blocks, table, 0, &n, &new_lease));
    FAILS(BLOCK_COUNT,
          radixkv_session_insert(session, lease, tokens, 5, blocks, NULL, 0, &n, &new_lease));
    FAILS(SEQUENCE_TOO_SHORT,
          radixkv_session_insert(session, lease, tokens, 3, blocks, NULL, 0, &n, &new_lease));
    CHECK(n == 77 && table[0] == 77);
    OK(radixkv_reservation_len(blocks, &n));
    CHECK(n == 1);

    /* Lengths that no memory has, and tokens that are not aligned. */
    FAILS(INVALID_ARGUMENT, radixkv_session_peek(session, space, tokens, SIZE_MAX, &n));
    FAILS(INVALID_ARGUMENT, radixkv_session_peek(session, space, tokens, SIZE_MAX / 8 + 1, &n));
    const uint32_t *unaligned = (const uint32_t *)(const void *)((const char *)tokens + 1);
    FAILS(INVALID_ARGUMENT, radixkv_session_peek(session, space, unaligned, 2, &n));
    /* More room than a request can have. */
    FAILS(TOO_LARGE, radixkv_session_acquire(session, space, tokens, 4, SIZE_MAX, NULL, 0, &n, &new_lease,
                                             &new_blocks));
    FAILS(TOO_LARGE, radixkv_session_reserve(session, NULL, SIZE_MAX, &new_blocks));

    /* Nothing at all is a match of nothing. */
    OK(radixkv_session_match(session, space, NULL, 0, NULL, 0, &n, &new_lease));
    CHECK(n == 0);
    radixkv_lease_release(new_lease);
    OK(radixkv_session_reserve(session, NULL, 0, &new_blocks));
    radixkv_reservation *empty;
    OK(radixkv_reservation_split(new_blocks, 0, &empty));
    OK(radixkv_reservation_blocks(empty, NULL, 0, &n));
    CHECK(n == 0);
    radixkv_reservation_free(empty);
    FAILS(INVALID_ARGUMENT, radixkv_reservation_split(new_blocks, 1, &empty));
    CHECK(empty == NULL);
    FAILS(INVALID_ARGUMENT, radixkv_reservation_append(blocks, blocks));
    FAILS(NOT_EXTERNAL, radixkv_cache_adopt(cache, table, 0, &empty));
    radixkv_reservation_free(new_blocks);
    uint32_t id;
    FAILS(NOT_EXTERNAL, radixkv_cache_take_evicted(cache, &id, 1, &n));
    FAILS(INVALID_ARGUMENT, radixkv_cache_take_evicted(cache, &id, 0, &n));
    FAILS(NOT_BACKGROUND, radixkv_cache_set_watermarks(cache, 1, 2));
    FAILS(CANNOT_GROW, radixkv_cache_grow(cache, 1, &id));

    /* A caller that was compiled with fewer fields, and one that was compiled with more. */
    struct {
        radixkv_stats stats;
        uint64_t newer;
    } more;
    memset(&more, 0xff, sizeof more);
    FAILS(INVALID_ARGUMENT, radixkv_cache_read_stats(cache, &more.stats, 0));
    OK(radixkv_cache_read_stats(cache, &more.stats, 2 * sizeof(uint64_t)));
    CHECK(more.stats.capacity_blocks == 8 && more.stats.reserved_blocks == UINT64_MAX);
    OK(radixkv_cache_read_stats(cache, &more.stats, sizeof more));
    CHECK(more.stats.reserved_blocks == 1 && more.newer == 0);
}

static void builders_and_names(void) {
    radixkv_builder *builder;
    radixkv_cache *built;
    radixkv_namespace *new_space;
    radixkv_error error;
    OK(radixkv_builder_new(0, 8, &builder));
    FAILS(INVALID_ARGUMENT, radixkv_builder_build(builder, &built));
    CHECK(built == NULL);
    OK(radixkv_last_error(&error));
    CHECK(strstr(error.text, "block size is 0") != NULL);
    radixkv_builder_free(builder);
    OK(radixkv_builder_new(16, 0, &builder));
    FAILS(INVALID_ARGUMENT, radixkv_builder_build(builder, &built));
    radixkv_builder_free(builder);
    OK(radixkv_builder_new(SIZE_MAX, SIZE_MAX, &builder));
    FAILS(INVALID_ARGUMENT, radixkv_builder_build(builder, &built));
    radixkv_builder_free(builder);
    OK(radixkv_builder_new(16, 8, &builder));
    FAILS(INVALID_ARGUMENT, radixkv_builder_policy(builder, "least-recent"));
    OK(radixkv_last_error(&error));
    CHECK(strstr(error.text, "lru lfu fifo") != NULL);
    FAILS(INVALID_ARGUMENT, radixkv_builder_policy(builder, "\xff"));
    OK(radixkv_builder_background(builder, 9, 4));
    FAILS(INVALID_ARGUMENT, radixkv_builder_build(builder, &built));
    OK(radixkv_builder_background(builder, 0, 0));
    OK(radixkv_builder_build(builder, &built));
    OK(radixkv_cache_set_watermarks(built, 1, 2));
    FAILS(INVALID_ARGUMENT, radixkv_cache_set_watermarks(built, 3, 2));
    radixkv_cache_free(built);
    radixkv_builder_free(builder);

    FAILS(INVALID_ARGUMENT, radixkv_cache_set_policy(cache, "slru:"));
    const char *name = "\xc3(";
    FAILS(INVALID_ARGUMENT, radixkv_namespace_new(cache, &name, NULL, 1, RADIXKV_KEYS_TOKENS, &new_space));
    name = "tenant";
    FAILS(INVALID_ARGUMENT, radixkv_namespace_new(cache, &name, NULL, 1, 2, &new_space));
    size_t too_long = SIZE_MAX;
    FAILS(INVALID_ARGUMENT, radixkv_namespace_new(cache, &name, &too_long, 1, 0, &new_space));
    CHECK(new_space == NULL);
    OK(radixkv_last_error(&error));
    CHECK(error.status == RADIXKV_STATUS_INVALID_ARGUMENT);
}

/* Numbers at the ends of their ranges are refused, or mean what they say. */
static void extreme_numbers(void) {
    radixkv_builder *builder;
    radixkv_cache *own;
    radixkv_session *one;
    radixkv_namespace *tenant;
    radixkv_lease *held;
    radixkv_reservation *taken, *part;
    radixkv_subscription *events;
    radixkv_partial_hit *hit;
    radixkv_error error;
    uint32_t id = UINT32_MAX;
    size_t n;
    OK(radixkv_builder_new(1, 4, &builder));
    OK(radixkv_builder_time_to_idle(builder, UINT64_MAX));
    OK(radixkv_builder_background(builder, SIZE_MAX, SIZE_MAX));
    FAILS(INVALID_ARGUMENT, radixkv_builder_build(builder, &own));
    OK(radixkv_builder_background(builder, 0, 4));
    OK(radixkv_builder_growable_to(builder, SIZE_MAX));
    FAILS(INVALID_ARGUMENT, radixkv_builder_build(builder, &own));
    OK(radixkv_builder_growable_to(builder, 8));
    OK(radixkv_builder_shards(builder, 0));
    FAILS(INVALID_ARGUMENT, radixkv_builder_build(builder, &own));
    OK(radixkv_builder_shards(builder, 257));
    FAILS(INVALID_ARGUMENT, radixkv_builder_build(builder, &own));
    OK(radixkv_builder_shards(builder, 2));
    OK(radixkv_builder_build(builder, &own));
    radixkv_builder_free(builder);
    OK(radixkv_session_new(own, &one));
    OK(radixkv_namespace_default(own, &tenant));
    held = cached(one, tenant, tokens, 2);
    OK(radixkv_session_retain(one, held, UINT64_MAX));
    OK(radixkv_session_prioritize(one, held, INT64_MIN, UINT64_MAX));
    OK(radixkv_session_prioritize(one, held, INT64_MAX, 0));
    OK(radixkv_session_match_partial(one, held, tokens, 5, SIZE_MAX, &id, &n, &hit));
    CHECK(hit == NULL && id == UINT32_MAX);
    FAILS(CANNOT_GROW, radixkv_cache_grow(own, SIZE_MAX, &id));
    OK(radixkv_cache_grow(own, 0, NULL));
    OK(radixkv_cache_invalidate(own, &id, 1, &n));
    CHECK(n == 0);
    OK(radixkv_cache_set_time(own, UINT64_MAX));
    OK(radixkv_cache_set_time_to_idle(own, UINT64_MAX));
    OK(radixkv_cache_subscribe(own, SIZE_MAX, &events));
    radixkv_subscription_free(events);
    OK(radixkv_cache_subscribe(own, 0, &events));
    radixkv_subscription_free(events);

    /* Two of four blocks are free. */
    OK(radixkv_session_reserve_within(one, tenant, 2, false, 0, &taken));
    FAILS(TIMED_OUT, radixkv_session_reserve_within(one, tenant, 1, false, 0, &part));
    FAILS(INVALID_ARGUMENT, radixkv_reservation_split(taken, SIZE_MAX, &part));
    radixkv_reservation_free(taken);
    OK(radixkv_session_reserve_within(one, NULL, 2, true, UINT64_MAX, &taken));
    radixkv_reservation_free(taken);
    FAILS(TOO_LARGE, radixkv_session_reserve_within(one, tenant, SIZE_MAX, true, UINT64_MAX, &taken));
    OK(radixkv_last_error(&error));
    CHECK(error.requested == SIZE_MAX && error.limit == 4);

    /* A namespace that may have nothing. */
    OK(radixkv_namespace_set_quota(tenant, 0, 0, 0));
    FAILS(OVER_QUOTA, radixkv_session_reserve(one, tenant, 1, &taken));
    OK(radixkv_namespace_set_quota(tenant, UINT64_MAX - 1, UINT64_MAX - 1, UINT64_MAX - 1));
    OK(radixkv_session_reserve(one, tenant, 1, &taken));
    radixkv_reservation_free(taken);
    OK(radixkv_cache_evict(own, SIZE_MAX, &n));
    CHECK(n == 0);
    OK(radixkv_session_release_retained(one, held));
    radixkv_lease_release(held);
    OK(radixkv_namespace_evict_idle(tenant, UINT64_MAX, &n));
    CHECK(n == 0);
    OK(radixkv_namespace_evict(tenant, SIZE_MAX, &n));
    CHECK(n == 2);
    OK(radixkv_cache_validate(own));
    radixkv_namespace_free(tenant);
    radixkv_session_free(one);
    radixkv_cache_free(own);
}

int main(void) {
    radixkv_error error;
    OK(radixkv_last_error(&error));
    CHECK(error.status == RADIXKV_STATUS_OK && strcmp(error.text, "no call has failed") == 0);
    open_both();
    radixkv_stats before = stats_of(cache), before_foreign = stats_of(foreign);
    null_arguments();
    handles_of_another_cache();
    radixkv_stats after = stats_of(cache), after_foreign = stats_of(foreign);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(memcmp(&before_foreign, &after_foreign, sizeof before) == 0);
    buffers_and_sizes();
    builders_and_names();
    extreme_numbers();
    after = stats_of(cache);
    CHECK(after.free_blocks == before.free_blocks && after.reserved_blocks == 1);
    CHECK(after.protected_blocks == 2 && after.inserts == 1);
    OK(radixkv_cache_validate(cache));
    close_both();
    puts("5 passed, 0 failed");
    return 0;
}
