#pragma once

#include "reference.hpp"

void test_decode(const Shape& shape, const std::vector<u32>& lengths, u32 most_splits, const Model& model, u32 seed);
void test_extend(const Shape& shape, const std::vector<u32>& lengths, const std::vector<u32>& chunk, u32 most_splits, const Model& model,
                 bool trees, u32 seed);
void test_cascade(const Shape& shape, const std::vector<u32>& lengths, u32 shared, u32 most_splits, const Model& model, u32 seed);
void test_fading(const Shape& shape, u32 seed);
void test_ranges(const Shape& shape, u32 seed);
void test_widening(u32 seed);
void test_nan(const Shape& shape, u32 seed);
void test_merge(const Shape& shape, u32 seed);
void test_empty(const Shape& shape, u32 seed);

// `far`: rows are 2^31 elements apart and more.
void test_append(const Shape& shape, u32 tokens, bool far, u32 seed);
void test_copy(u32 rows, u32 row_units, u32 planes, u32 seed);
void test_compare(u32 runs, u32 longest, u32 seed);
void test_bandwidth(u32 units, u32 seed);
void test_queues();
void test_programs();
void test_selftest(u32 seed, const char* write_to);
