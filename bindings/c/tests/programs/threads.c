/* Threads that share a cache; handles that only one thread may use at a time. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BLOCK = 4, BLOCKS = 24, ROUNDS = 1500, PROMPT = 20 };

static radixkv_cache *cache;
/* What the engine's blocks hold: the tokens that they were filled with. */
static uint32_t memory[BLOCKS][BLOCK];

/* Requests of a few families of prompts, in a pool for a few of them: hits, evictions, duplicates and waits. */
static void *serve(void *argument) {
    unsigned random = (unsigned)(size_t)argument;
    radixkv_session *session;
    radixkv_namespace *space;
    OK(radixkv_session_new(cache, &session));
    OK(radixkv_namespace_default(cache, &space));
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t prompt[PROMPT], table[PROMPT / BLOCK], own_ids[PROMPT / BLOCK];
        radixkv_lease *hit, *whole;
        radixkv_reservation *own;
        size_t tokens, len;
        random = random * 1664525u + 1013904223u;
        for (uint32_t i = 0; i < PROMPT; i++) {
            prompt[i] = i < 8 ? (random >> 28) % 3 : i < 16 ? (random >> 24) % 5 : i;
        }
        OK(radixkv_session_acquire_within(session, space, prompt, PROMPT, 0, 60000000000u, table,
                                          PROMPT / BLOCK, &tokens, &hit, &own));
        for (size_t i = 0; i < tokens; i++) {
            CHECK(memory[table[i / BLOCK]][i % BLOCK] == prompt[i]);
        }
        OK(radixkv_reservation_blocks(own, own_ids, PROMPT / BLOCK, &len));
        CHECK(tokens + len * BLOCK == PROMPT);
        for (size_t i = 0; i < len; i++) {
            memcpy(memory[own_ids[i]], prompt + tokens + i * BLOCK, sizeof memory[0]);
        }
        OK(radixkv_session_insert(session, hit, prompt, PROMPT, own, table, PROMPT / BLOCK, NULL, &whole));
        for (size_t i = 0; i < len; i++) {
            CHECK(memcmp(memory[table[i]], prompt + tokens + i * BLOCK, sizeof memory[0]) == 0);
        }
        radixkv_reservation_free(own);
        radixkv_lease_release(hit);
        radixkv_lease_release(whole);
    }
    radixkv_namespace_free(space);
    radixkv_session_free(session);
    return NULL;
}

static void four_threads(void) {
    pthread_t threads[4];
    cache = cache_of(BLOCK, BLOCKS);
    for (size_t i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, serve, (void *)(i + 1)) == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    radixkv_stats stats = stats_of(cache);
    CHECK(stats.inserts == 4 * ROUNDS && stats.hit_tokens > 0 && stats.evicted_blocks > 0);
    CHECK(stats.free_blocks + stats.evictable_blocks == BLOCKS);
    OK(radixkv_cache_validate(cache));
    radixkv_cache_free(cache);
}

static radixkv_session *shared;
static atomic_int status_of_waiter = -1;

static void *wait_for_blocks(void *argument) {
    radixkv_reservation *blocks;
    (void)argument;
    radixkv_status status = radixkv_session_reserve_within(shared, NULL, 1, false, 60000000000u, &blocks);
    atomic_store(&status_of_waiter, (int)status);
    /* The last handle of the cache: the index is freed here. */
    radixkv_reservation_free(blocks);
    return NULL;
}

/* One thread waits inside a call; another one that uses the same session is refused, and does not disturb it. */
static void a_session_in_two_threads(void) {
    radixkv_session *own;
    radixkv_reservation *all, *none;
    radixkv_stats stats;
    pthread_t waiter;
    cache = cache_of(BLOCK, 1);
    OK(radixkv_session_new(cache, &own));
    OK(radixkv_session_new(cache, &shared));
    OK(radixkv_session_reserve(own, NULL, 1, &all));
    CHECK(pthread_create(&waiter, NULL, wait_for_blocks, NULL) == 0);
    do {
        OK(radixkv_cache_read_stats(cache, &stats, sizeof stats));
    } while (stats.waiting_requests == 0);
    FAILS(HANDLE_BUSY, radixkv_session_reserve(shared, NULL, 1, &none));
    CHECK(none == NULL && atomic_load(&status_of_waiter) == -1);
    radixkv_reservation_free(all);
    CHECK(pthread_join(waiter, NULL) == 0);
    CHECK(atomic_load(&status_of_waiter) == RADIXKV_STATUS_OK);
    OK(radixkv_session_reserve(shared, NULL, 1, &all));
    radixkv_session_free(own);
    radixkv_session_free(shared);
    radixkv_cache_free(cache);
    /* A reservation keeps the cache alive. */
    size_t count;
    OK(radixkv_reservation_len(all, &count));
    CHECK(count == 1);
    radixkv_reservation_free(all);
}

static void *fail_once(void *argument) {
    radixkv_error error;
    (void)argument;
    FAILS(NULL_POINTER, radixkv_cache_settle(NULL));
    OK(radixkv_last_error(&error));
    CHECK(strcmp(error.text, "cache is NULL") == 0);
    return NULL;
}

static void each_thread_has_its_own_last_error(void) {
    radixkv_error error;
    pthread_t other;
    FAILS(NULL_POINTER, radixkv_namespace_clear(NULL));
    CHECK(pthread_create(&other, NULL, fail_once, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    OK(radixkv_last_error(&error));
    CHECK(strcmp(error.text, "space is NULL") == 0);
}

int main(void) {
    four_threads();
    a_session_in_two_threads();
    each_thread_has_its_own_last_error();
    puts("3 passed, 0 failed");
    return 0;
}
