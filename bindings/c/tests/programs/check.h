/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <radixkv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            radixkv_error error_;                                                                \
            radixkv_last_error(&error_);                                                         \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,      \
                    error_.text);                                                                \
            abort();                                                                             \
        }                                                                                        \
    } while (0)

#define OK(call) CHECK((call) == RADIXKV_STATUS_OK)

/* The call fails with this status. */
#define FAILS(code, call) CHECK((call) == RADIXKV_STATUS_##code)

static inline radixkv_cache *cache_of(size_t block_size, size_t blocks) {
    radixkv_builder *builder;
    radixkv_cache *cache;
    OK(radixkv_builder_new(block_size, blocks, &builder));
    OK(radixkv_builder_build(builder, &cache));
    radixkv_builder_free(builder);
    return cache;
}

static inline radixkv_stats stats_of(radixkv_cache *cache) {
    radixkv_stats stats;
    OK(radixkv_cache_settle(cache));
    OK(radixkv_cache_read_stats(cache, &stats, sizeof stats));
    return stats;
}

/* Caches the tokens, and returns a lease on them. */
static inline radixkv_lease *cached(radixkv_session *session, radixkv_namespace *space,
                                    const uint32_t *tokens, size_t len) {
    radixkv_lease *hit, *whole;
    radixkv_reservation *blocks;
    OK(radixkv_session_acquire(session, space, tokens, len, 0, NULL, 0, NULL, &hit, &blocks));
    OK(radixkv_session_insert(session, hit, tokens, len, blocks, NULL, 0, NULL, &whole));
    radixkv_reservation_free(blocks);
    radixkv_lease_release(hit);
    return whole;
}

#endif
