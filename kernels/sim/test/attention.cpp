// decode, extend, cascade and merge against the reference.
#include <cstdarg>

#include "tests.hpp"

namespace {

constexpr double LOG2_E = 1.4426950408889634;
// Of the log-sums that are written: natural in some schedules, binary in others.
float lse_scale(u32 schedule) { return schedule % 3 == 1 ? (float)(1 / LOG2_E) : 1.f; }
const size_t SHARED_DECODE = 98304;
size_t shared_rows(const Shape& shape) { return (128 * shape.dim + 4 * 64 * shape.dim) * 2 + 128 * 4; }

// Partial rows, the merge items that read them, and where results go: what every plan needs.
struct Results {
  Results(const Shape& shape, u32 tokens)
      : shape(shape),
        tokens(tokens),
        out((size_t)tokens * shape.q_heads() * shape.dim),
        lse((size_t)tokens * shape.q_heads()) {}
  // Output rows row, row + 1, ... of `rows`, from the partial rows that begin at `from`.
  void merge_row(u32 row, u32 rows, const std::vector<u32>& from) {
    items.push_back({first_row() + row, rows, (u32)list.size(), (u32)from.size()});
    for (u32 part : from) list.push_back(FIRST_PART + part);
  }
  void merge(const Memory<float>& part_o, const Memory<float>& part_ml, u32 schedule) {
    if (items.empty()) return;
    u32 rows = 0;
    for (const RkMergeItem& i : items) rows = std::max(rows, i.rows);
    items.push_back({0x7fffffff, 0, 0x7fffffff, 9});        // room that is not used
    Memory<RkMergeItem> m(items);
    Memory<u32> l(list);
    launch("rk_merge" + shape.suffix(), (u32)items.size(), rows, 128, 0, schedule,
           RkMergeArgs{first_out(), first_lse(), before(part_o.get(), (u64)FIRST_PART * shape.dim),
                       before(part_ml.get(), (u64)FIRST_PART * 2), m.get(), l.get(), (u32)items.size(), lse_scale(schedule)});
  }
  u16* first_out() const { return before(out.get(), (u64)first_row() * shape.dim); }
  float* first_lse() const { return before(lse.get(), first_row()); }
  // The number of output row 0.
  u32 first_row() const { return first_token(shape) * shape.q_heads(); }
  const Shape shape;
  const u32 tokens;
  Memory<u16> out;
  Memory<float> lse;
  std::vector<RkMergeItem> items;
  std::vector<u32> list;
};

struct Queries {
  Queries(const Shape& shape, u32 tokens, Random& r)
      : stride(shape.q_heads() * shape.dim + 8 * draw(r, 3)), q((size_t)tokens * stride) {
    for (u32 t = 0; t < tokens; ++t)
      for (u32 h = 0; h < shape.q_heads(); ++h) {
        // Scores of half of the rows are so large that their powers of two leave the range of a float, both ways.
        const double size = draw(r, 2) ? 1.5 : 90;
        for (u32 d = 0; d < shape.dim; ++d) q[(size_t)t * stride + h * shape.dim + d] = shape.type.encode(normal(r) * size);
      }
  }
  const u16* first(const Shape& shape) const { return before(q.get(), (u64)first_token(shape) * stride); }
  const u16* row(const Shape& shape, u32 token, u32 head) const {
    return q.get() + (size_t)token * stride + head * shape.dim;
  }
  const u32 stride;
  Memory<u16> q;
};

void compare(const char* what, const Pool& pool, const Queries& queries, const Results& results,
             const std::vector<u32>& seq_of, const std::vector<u32>& limit_of, double scale, u32 schedule) {
  const Shape& shape = pool.shape;
  Error error;
  std::vector<double> want;
  for (u32 t = 0; t < results.tokens; ++t)
    for (u32 h = 0; h < shape.q_heads(); ++h) {
      const double lse = attend(pool, seq_of[t], h / shape.group, queries.row(shape, t, h), limit_of[t], scale, want);
      const size_t row = (size_t)t * shape.q_heads() + h;
      error.add(want, results.out.get() + row * shape.dim, shape.type, lse * lse_scale(schedule), results.lse[row]);
    }
  check(error.within(shape.type.tolerance()), "%s %s schedule %u: error %.2e, worst row %.2e, lse %.1e", what,
        shape.text().c_str(), schedule, error.relative(), error.worst_row, error.lse);
}

// Cuts [first, end) at random multiples of 16, now and then into an empty part.
std::vector<std::pair<u32, u32>> cut(u32 first, u32 end, u32 most, Random& r) {
  std::vector<u32> at = {first, end};
  for (u32 i = draw(r, most); i > 0; --i)
    at.push_back(std::min(end / 16 * 16, first + draw(r, end - first + 1) / 16 * 16));
  for (u32& a : at) a = std::max(a, first);
  std::sort(at.begin(), at.end());
  std::vector<std::pair<u32, u32>> parts;
  for (size_t i = 0; i + 1 < at.size(); ++i) parts.emplace_back(at[i], at[i + 1]);
  return parts;
}

// Decode items of keys [first, length) of every sequence: split at random, or direct where `direct` allows.
struct DecodePlan {
  std::vector<RkDecodeItem> items;
  u32 rows = 0;
  std::vector<std::vector<u32>> parts;  // of each (sequence, key-value head)
  void add(const Pool& pool, u32 seq, u32 first, bool direct, u32 most, Random& r) {
    for (u32 h = 0; h < pool.shape.kv_heads; ++h) {
      const auto ranges = cut(first, pool.lengths[seq], most, r);
      parts.emplace_back();
      for (const auto& range : ranges) {
        const bool alone = direct && ranges.size() == 1;
        items.push_back({first_token(pool.shape) + seq, pool.starts[seq], h, range.first, range.second,
                         alone ? RK_DIRECT : FIRST_PART + rows});
        if (alone) continue;
        parts.back().push_back(rows);
        rows += pool.shape.group;
      }
    }
  }
};

RkDecodeArgs decode_args(const Pool& pool, const Queries& q, const Results& to, const Memory<float>& o,
                         const Memory<float>& ml, const Memory<RkDecodeItem>& items, double scale, u32 schedule) {
  return {pool.kv(),
          q.first(pool.shape),
          to.first_out(),
          to.first_lse(),
          before(o.get(), (u64)FIRST_PART * pool.shape.dim),
          before(ml.get(), (u64)FIRST_PART * 2),
          pool.table.get(),
          items.get(),
          (u32)items.size(),
          pool.shape.q_heads(),
          pool.shape.kv_heads,
          q.stride,
          (float)(scale * LOG2_E),
          lse_scale(schedule)};
}

RkTileArgs tile_args(const Pool& pool, const Queries& q, const Results& to, const Memory<float>& o,
                     const Memory<float>& ml, const Memory<RkTile>& tiles, const u32* members, double scale,
                     u32 schedule) {
  return {pool.kv(),
          q.first(pool.shape),
          to.first_out(),
          to.first_lse(),
          before(o.get(), (u64)FIRST_PART * pool.shape.dim),
          before(ml.get(), (u64)FIRST_PART * 2),
          pool.table.get(),
          tiles.get(),
          members,
          (u32)tiles.size(),
          pool.shape.q_heads(),
          pool.shape.kv_heads,
          q.stride,
          (float)(scale * LOG2_E),
          lse_scale(schedule)};
}

}  // namespace

void test_decode(const Shape& shape, const std::vector<u32>& lengths, u32 most_splits, u32 seed) {
  Random r(seed);
  const Pool pool(shape, lengths, r);
  const u32 n = (u32)lengths.size();
  const Queries queries(shape, n, r);
  Results results(shape, n);
  DecodePlan plan;
  for (u32 s = 0; s < n; ++s) plan.add(pool, s, 0, true, most_splits, r);
  // Room that is not used, anywhere in the list.
  plan.items.insert(plan.items.begin() + draw(r, (u32)plan.items.size()), {0x7fffffff, 0x7fffffff, RK_IDLE, 8, 64, RK_DIRECT});
  Memory<float> o((size_t)plan.rows * shape.dim), ml((size_t)plan.rows * 2);
  const double scale = 1 / std::sqrt((double)shape.dim);
  Memory<RkDecodeItem> items(plan.items);
  launch("rk_decode" + shape.suffix(), (u32)items.size(), 1, 128, SHARED_DECODE, seed,
         decode_args(pool, queries, results, o, ml, items, scale, seed));
  for (u32 i = 0; i < plan.parts.size(); ++i)
    if (!plan.parts[i].empty()) results.merge_row(i * shape.group, shape.group, plan.parts[i]);
  results.merge(o, ml, seed);
  std::vector<u32> seq(n);
  for (u32 s = 0; s < n; ++s) seq[s] = s;
  compare("decode", pool, queries, results, seq, lengths, scale, seed);
}

// `chunk[s]` new tokens at the end of each sequence.
void test_extend(const Shape& shape, const std::vector<u32>& lengths, const std::vector<u32>& chunk, u32 most_splits,
                 u32 seed) {
  Random r(seed);
  const Pool pool(shape, lengths, r);
  std::vector<u32> seq, limit, begins;
  for (u32 s = 0; s < lengths.size(); ++s) {
    begins.push_back((u32)seq.size());
    for (u32 t = 0; t < chunk[s]; ++t) {
      seq.push_back(s);
      limit.push_back(lengths[s] - chunk[s] + t + 1);
    }
  }
  const Queries queries(shape, (u32)seq.size(), r);
  Results results(shape, (u32)seq.size());
  std::vector<RkTile> tiles;
  std::vector<std::vector<u32>> parts(seq.size() * shape.kv_heads);
  u32 part = 0;
  for (u32 s = 0; s < lengths.size(); ++s)
    for (u32 h = 0; h < shape.kv_heads; ++h)
      for (u32 row = 0; row < chunk[s] * shape.group;) {
        // A tile that is split holds whole tokens, whose rows a merge item can name; one that writes directly ends
        // anywhere.
        const auto ranges = row % shape.group == 0 ? cut(0, lengths[s], most_splits, r) : cut(0, lengths[s], 1, r);
        const bool alone = ranges.size() == 1;
        const u32 rows =
            std::min(alone ? 128 - draw(r, 2) : 128 / shape.group * shape.group, chunk[s] * shape.group - row);
        for (const auto& range : ranges) {
          tiles.push_back({pool.starts[s], h, range.first, range.second, alone ? RK_DIRECT : FIRST_PART + part, row, rows,
                           first_token(shape) + begins[s], lengths[s] - chunk[s] + 1});
          if (alone) continue;
          for (u32 t = row / shape.group; t < (row + rows) / shape.group; ++t)
            parts[(begins[s] + t) * shape.kv_heads + h].push_back(part + t * shape.group - row);
          part += rows;
        }
        row += rows;
      }
  Memory<float> o((size_t)part * shape.dim), ml((size_t)part * 2);
  const double scale = 0.9 / std::sqrt((double)shape.dim);
  Memory<RkTile> given(tiles);
  launch("rk_extend" + shape.suffix(), (u32)tiles.size(), 1, 128, shared_rows(shape), seed,
         tile_args(pool, queries, results, o, ml, given, nullptr, scale, seed));
  for (u32 i = 0; i < parts.size(); ++i)
    if (!parts[i].empty()) results.merge_row(i * shape.group, shape.group, parts[i]);
  results.merge(o, ml, seed);
  compare("extend", pool, queries, results, seq, limit, scale, seed);
}

// Sequences that share `shared` blocks, and one that has them to itself: the prefix once for the sharers, and in between
// what each sequence has beside it.
void test_cascade(const Shape& shape, const std::vector<u32>& lengths, u32 shared, u32 most_splits, u32 seed) {
  Random r(seed);
  const Pool pool(shape, lengths, r, shared);
  const u32 n = (u32)lengths.size(), prefix = shared * shape.block();
  const Queries queries(shape, n, r);
  Results results(shape, n);
  std::vector<u32> members(n);
  for (u32 s = 0; s < n; ++s) members[s] = s;
  std::shuffle(members.begin(), members.end(), r);
  DecodePlan rests;
  for (u32 s = 0; s < n; ++s) {
    const bool alone = s == members[n - 1];
    rests.add(pool, s, alone ? 0 : prefix, alone, most_splits, r);
  }
  std::vector<RkTile> tiles;
  for (const RkDecodeItem& i : rests.items) {
    const auto member = std::find(members.begin(), members.end(), i.seq - first_token(shape));
    tiles.push_back({i.table, i.kv_head, i.first, i.end, i.part, 0, shape.group, (u32)(member - members.begin()), RK_ALL});
  }
  u32 part = rests.rows;
  for (u32 h = 0; h < shape.kv_heads; ++h)
    for (u32 row = 0; row < (n - 1) * shape.group;) {
      const u32 rows = std::min(128 / shape.group * shape.group, (n - 1) * shape.group - row);
      for (const auto& range : cut(0, prefix, most_splits, r)) {
        tiles.push_back({pool.starts[members[0]], h, range.first, range.second, FIRST_PART + part, row, rows, 0, RK_ALL});
        for (u32 m = row / shape.group; m < (row + rows) / shape.group; ++m)
          rests.parts[members[m] * shape.kv_heads + h].push_back(part + m * shape.group - row);
        part += rows;
      }
      row += rows;
    }
  std::shuffle(tiles.begin(), tiles.end(), r);
  Memory<float> o((size_t)part * shape.dim), ml((size_t)part * 2);
  Memory<RkTile> given(tiles);
  Memory<u32> tokens(members);
  for (u32 m = 0; m < n; ++m) tokens[m] += first_token(shape);
  const double scale = 1 / std::sqrt((double)shape.dim);
  launch("rk_cascade" + shape.suffix(), (u32)tiles.size(), 1, 128, std::max(shared_rows(shape), SHARED_DECODE), seed,
         tile_args(pool, queries, results, o, ml, given, tokens.get(), scale, seed));
  for (u32 i = 0; i < rests.parts.size(); ++i)
    if (!rests.parts[i].empty()) results.merge_row(i * shape.group, shape.group, rests.parts[i]);
  results.merge(o, ml, seed);
  std::vector<u32> seq(n);
  for (u32 s = 0; s < n; ++s) seq[s] = s;
  compare("cascade", pool, queries, results, seq, lengths, scale, seed);
}

// Rows that saw no key: out 0, lse -inf; a tile over an empty range, direct and in part; a merge of nothing.
void test_empty(const Shape& shape, u32 seed) {
  Random r(seed);
  const Pool pool(shape, {20}, r);
  const Queries queries(shape, 1, r);
  const double scale = 1;
  for (int kind = 0; kind < 4; ++kind) {
    Results results(shape, 1);
    Memory<float> o((size_t)128 * shape.dim), ml(256);
    const u32 part = kind < 2 ? RK_DIRECT : FIRST_PART, token = first_token(shape);
    for (u32 h = 0; h < shape.kv_heads; ++h) {
      std::vector<RkDecodeItem> items = {{token, pool.starts[0], h, 16, 16, part}};
      std::vector<RkTile> tiles = {{pool.starts[0], h, 16, 20, part, 0, shape.group, token, 10}};
      Memory<RkDecodeItem> i(items);
      Memory<RkTile> t(tiles);
      if (kind % 2)
        launch("rk_extend" + shape.suffix(), 1, 1, 128, shared_rows(shape), seed,
               tile_args(pool, queries, results, o, ml, t, nullptr, scale, seed));
      else
        launch("rk_decode" + shape.suffix(), 1, 1, 128, SHARED_DECODE, seed,
               decode_args(pool, queries, results, o, ml, i, scale, seed));
      if (kind >= 2) results.merge_row(h * shape.group, shape.group, h ? std::vector<u32>{} : std::vector<u32>{0, 0});
    }
    results.merge(o, ml, seed);
    bool zero = true;
    for (size_t i = 0; i < results.out.size(); ++i) zero = zero && (results.out[i] & 0x7fff) == 0;
    for (size_t i = 0; i < results.lse.size(); ++i) zero = zero && results.lse[i] == -INFINITY;
    check(zero, "empty %d %s schedule %u", kind, shape.text().c_str(), seed);
  }
}

// Partial rows of any number, magnitude and order, some of them empty, against their sum in 64 bits.
void test_merge(const Shape& shape, u32 seed) {
  Random r(seed);
  const u32 rows = shape.group, counts[] = {0, 1, 2, 3 + draw(r, 15), 18 + draw(r, 20), 70};
  Results results(shape, 6 * shape.kv_heads);
  u32 parts = 0;
  for (u32 count : counts) parts += count;
  Memory<float> o((size_t)parts * rows * shape.dim), ml((size_t)parts * rows * 2);
  std::vector<u32> bases(parts);
  for (u32 i = 0; i < parts; ++i) bases[i] = i * rows;
  std::shuffle(bases.begin(), bases.end(), r);
  for (u32 row = 0; row < parts * rows; ++row) {
    const bool empty = draw(r, 6) == 0;
    ml[row * 2] = empty ? -INFINITY : (float)(normal(r) * (row % 2 ? 4 : 240));
    ml[row * 2 + 1] = empty ? 0.f : (float)(0.5 + std::fabs(normal(r)) * 3);
    for (u32 d = 0; d < shape.dim; ++d) o[(size_t)row * shape.dim + d] = empty ? 0.f : (float)normal(r);
  }
  u32 next = 0;
  for (u32 i = 0; i < 6; ++i) {
    results.merge_row(i * shape.q_heads(), rows,
                      std::vector<u32>(bases.begin() + next, bases.begin() + next + counts[i]));
    next += counts[i];
  }
  results.merge(o, ml, seed);
  Error error;
  for (u32 i = 0; i < 6; ++i)
    for (u32 row = 0; row < rows; ++row) {
      const RkMergeItem& item = results.items[i];
      double sum = 0, top = -INFINITY;
      std::vector<double> want(shape.dim, 0);
      const auto part = [&](u32 p) { return (size_t)(results.list[item.first + p] - FIRST_PART) + row; };
      for (u32 p = 0; p < item.count; ++p) top = std::max(top, (double)ml[part(p) * 2]);
      for (u32 p = 0; p < item.count; ++p) {
        const size_t from = part(p);
        const double weight = ml[from * 2] == -INFINITY ? 0 : std::exp2(ml[from * 2] - top);
        sum += weight * ml[from * 2 + 1];
        for (u32 d = 0; d < shape.dim; ++d) want[d] += weight * o[from * shape.dim + d];
      }
      for (double& w : want) w = sum > 0 ? w / sum : 0;
      const size_t at = item.row - results.first_row() + row;
      error.add(want, results.out.get() + at * shape.dim, shape.type,
                sum > 0 ? (top + std::log2(sum)) * lse_scale(seed) : -INFINITY, results.lse[at]);
    }
  check(error.within(shape.type.tolerance()), "merge %s schedule %u: error %.2e, worst row %.2e, lse %.1e",
        shape.text().c_str(), seed, error.relative(), error.worst_row, error.lse);
}
