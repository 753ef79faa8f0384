// decode, extend, cascade and merge against the reference.
#include <cstdarg>

#include "tests.hpp"

#include "item.cuh"
#include "latent.cuh"
#include "rows.cuh"

namespace {

constexpr double LOG2_E = 1.4426950408889634;
// Of the log-sums that are written: natural in some schedules, binary in others.
float lse_scale(u32 schedule) { return schedule % 3 == 1 ? (float)(1 / LOG2_E) : 1.f; }
// What a variant needs: shared memory of decode and of extend, and how many rows its tiles have.
struct Sizes { size_t decode, rows_bytes; u32 rows; };
Sizes sizes(const Shape& shape) {
#define SIZES(name, D, V, K) \
  if (shape.suffix() == "_" #name) return {DecodeShape<D, V, K>::SHARED, RowsShape<D, V, K>::SHARED, RowsShape<D, V, K>::ROWS};
  RK_VARIANTS(SIZES)
  abort();
}
// The kernel that decodes: its name, threads, and shared memory.
struct Decoder { std::string name; u32 threads; size_t shared; };
Decoder decoder(const Shape& shape) {
  if (shape.pairs) return {"rk_decode" + shape.suffix() + "_pair", 128, DecodeShape<128, 128, Kind::E4M3, 2>::SHARED};
  if (!shape.latent_items) return {"rk_decode" + shape.suffix(), 128, sizes(shape).decode};
  const std::string name = std::string("rk_latent_") + shape.type.name();
  if (shape.item_rows() <= 16) return {name + "_h16", LatentShape<1>::THREADS, LatentShape<1>::SHARED};
  return {name + "_h32", LatentShape<2>::THREADS, LatentShape<2>::SHARED};
}
// The names of the other kernels.
std::string extender(const Shape& shape) { return "rk_extend" + shape.suffix(); }
std::string cascader(const Shape& shape) { return "rk_cascade" + shape.suffix(); }
std::string merger(const Shape& shape) { return "rk_merge" + shape.merge_suffix(); }
size_t shared_rows(const Shape& shape) { return sizes(shape).rows_bytes; }

// The model as the kernels take it.
struct Scoring {
  explicit Scoring(const Model& model) : model(model), sinks(in_log2(model.sinks)), slopes(in_log2(model.slopes)) {}
  static std::vector<float> in_log2(std::vector<float> of) {
    for (float& x : of) x *= (float)LOG2_E;
    return of;
  }
  const float* sinks_or_null() const { return model.sinks.empty() ? nullptr : sinks.get(); }
  RkScoring args() const {
    return {sinks_or_null(), model.slopes.empty() ? nullptr : slopes.get(), (float)(model.cap * LOG2_E),
            model.cap != 0 ? (float)(2 / model.cap) : 0.f, model.window, 0};
  }
  // The first key that a row at `position` sees.
  u32 low(u32 position) const { return position > model.window ? position - model.window : 0; }
  const Model model;
  const Memory<float> sinks, slopes;
};

// The table of a pool without the blocks that lie before key `low[s]` of each sequence.
std::vector<u32> without_blocks(const Pool& pool, const std::vector<u32>& low) {
  std::vector<u32> table = pool.table.copy();
  for (size_t s = 0; s < low.size(); ++s)
    for (u32 i = 0; i < low[s] / pool.shape.block; ++i) table[pool.starts[s] + i] = 0x7fffffff;
  return table;
}

// Partial rows, the merge items that read them, and where results go: what every plan needs.
struct Results {
  Results(const Shape& shape, u32 tokens)
      : shape(shape),
        tokens(tokens),
        out((size_t)tokens * shape.q_heads() * shape.value_dim),
        lse((size_t)tokens * shape.q_heads()) {}
  // Output rows row, row + 1, ... of `rows`, from the partial rows that begin at `from`.
  void merge_row(u32 row, u32 rows, const std::vector<u32>& from) {
    items.push_back({first_row() + row, rows, (u32)list.size(), (u32)from.size()});
    for (u32 part : from) list.push_back(FIRST_PART + part);
  }
  void merge(const Memory<float>& part_o, const Memory<float>& part_ml, const Scoring& scoring, u32 schedule) {
    if (items.empty()) return;
    u32 rows = 0;
    for (const RkMergeItem& i : items) rows = std::max(rows, i.rows);
    items.push_back({0x7fffffff, 0, 0x7fffffff, 9});        // room that is not used
    Memory<RkMergeItem> m(items);
    Memory<u32> l(list);
    launch(merger(shape), (u32)items.size(), rows, 128, 0, schedule,
           RkMergeArgs{first_out(), first_lse(), before(part_o.get(), (u64)FIRST_PART * shape.value_dim),
                       before(part_ml.get(), (u64)FIRST_PART * 2), m.get(), l.get(), scoring.sinks_or_null(),
                       (u32)items.size(), shape.q_heads(), lse_scale(schedule), 0});
  }
  u16* first_out() const { return before(out.get(), (u64)first_row() * shape.value_dim); }
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
  // `times`: what all of them are multiplied by.
  Queries(const Shape& shape, u32 tokens, Random& r, double times = 1)
      : stride(shape.q_heads() * shape.dim + 8 * draw(r, 3)), q((size_t)tokens * stride) {
    for (u32 t = 0; t < tokens; ++t)
      for (u32 h = 0; h < shape.q_heads(); ++h) {
        // Scores of half of the rows are so large that their powers of two leave the range of a float, both ways.
        const double size = (draw(r, 2) ? 1.5 : 90) * times;
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
             const std::vector<u32>& seq_of, const std::vector<View>& views, const Model& model, double scale, u32 schedule) {
  const Shape& shape = pool.shape;
  Error error;
  std::vector<double> want;
  for (u32 t = 0; t < results.tokens; ++t)
    for (u32 h = 0; h < shape.q_heads(); ++h) {
      const double lse = attend(pool, seq_of[t], h, queries.row(shape, t, h), views[t], scale, model, want);
      const size_t row = (size_t)t * shape.q_heads() + h;
      error.add(want, results.out.get() + row * shape.value_dim, shape.type, lse * lse_scale(schedule), results.lse[row]);
    }
  check(error.within(shape.type.tolerance()), "%s %s window %d cap %g sinks %d slopes %d schedule %u: error %.2e, worst row %.2e, lse %.1e",
        what, shape.text().c_str(), (int)model.window, model.cap, !model.sinks.empty(), !model.slopes.empty(), schedule, error.relative(),
        error.worst_row, error.lse);
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
    for (u32 h = 0; h < pool.shape.items(); ++h) {
      const auto ranges = cut(first, pool.lengths[seq], most, r);
      parts.emplace_back();
      for (const auto& range : ranges) {
        const bool alone = direct && ranges.size() == 1;
        items.push_back({first_token(pool.shape) + seq, pool.starts[seq], h, range.first, range.second,
                         alone ? RK_DIRECT : FIRST_PART + rows, pool.lengths[seq], 0});
        if (alone) continue;
        parts.back().push_back(rows);
        rows += pool.shape.item_rows();
      }
    }
  }
};

RkDecodeArgs decode_args(const Pool& pool, const Queries& q, const Results& to, const Memory<float>& o, const Memory<float>& ml,
                         const Memory<RkDecodeItem>& items, const Memory<u32>& table, const Scoring& scoring, double scale, u32 schedule) {
  return {pool.kv(),
          scoring.args(),
          q.first(pool.shape),
          to.first_out(),
          to.first_lse(),
          before(o.get(), (u64)FIRST_PART * pool.shape.value_dim),
          before(ml.get(), (u64)FIRST_PART * 2),
          table.get(),
          items.get(),
          (u32)items.size(),
          pool.shape.q_heads(),
          pool.shape.items(),
          q.stride,
          (float)(scale * LOG2_E),
          lse_scale(schedule)};
}

// What cascade has for its sequences, and extend for its tokens.
struct Extra { const u32 *members = nullptr, *contexts = nullptr, *trees = nullptr; };

RkTileArgs tile_args(const Pool& pool, const Queries& q, const Results& to, const Memory<float>& o, const Memory<float>& ml,
                     const Memory<RkTile>& tiles, const Memory<u32>& table, const Extra& extra, const Scoring& scoring, double scale,
                     u32 schedule) {
  return {pool.kv(),
          scoring.args(),
          q.first(pool.shape),
          to.first_out(),
          to.first_lse(),
          before(o.get(), (u64)FIRST_PART * pool.shape.value_dim),
          before(ml.get(), (u64)FIRST_PART * 2),
          table.get(),
          tiles.get(),
          extra.members,
          extra.contexts,
          extra.trees,
          (u32)tiles.size(),
          pool.shape.q_heads(),
          pool.shape.kv_heads,
          q.stride,
          (float)(scale * LOG2_E),
          lse_scale(schedule)};
}

}  // namespace

void test_decode(const Shape& shape, const std::vector<u32>& lengths, u32 most_splits, const Model& model, u32 seed) {
  if (!is_wanted({decoder(shape).name, merger(shape)})) return;
  Random r(seed);
  const Pool pool(shape, lengths, r);
  const u32 n = (u32)lengths.size();
  // Beside elements of 8 bits queries pass through f16, whose range they exceed here.
  const double times = shape.type.scaled() ? std::ldexp(1., 30 - 30 * (int)draw(r, 3)) : 1;
  const Queries queries(shape, n, r, times);
  const Scoring scoring(model);
  Results results(shape, n);
  DecodePlan plan;
  std::vector<u32> seq(n), low(n);
  std::vector<View> views(n);
  for (u32 s = 0; s < n; ++s) {
    seq[s] = s;
    low[s] = scoring.low(lengths[s]);
    views[s] = {lengths[s], lengths[s]};
    for (u32 t = 0; t < low[s]; ++t) pool.spoil(s, t);
    plan.add(pool, s, low[s], true, most_splits, r);
  }
  // Room that is not used, anywhere in the list.
  plan.items.insert(plan.items.begin() + draw(r, (u32)plan.items.size()), {0x7fffffff, 0x7fffffff, RK_IDLE, 8, 64, RK_DIRECT, 9, 0});
  Memory<float> o((size_t)plan.rows * shape.value_dim), ml((size_t)plan.rows * 2);
  const double scale = 1 / std::sqrt((double)shape.dim) / times;
  Memory<RkDecodeItem> items(plan.items);
  const Memory<u32> table(without_blocks(pool, low));
  const Decoder decode = decoder(shape);
  launch(decode.name, (u32)items.size(), 1, decode.threads, decode.shared, seed,
         decode_args(pool, queries, results, o, ml, items, table, scoring, scale, seed));
  for (u32 i = 0; i < plan.parts.size(); ++i)
    if (!plan.parts[i].empty()) results.merge_row(i * shape.item_rows(), shape.item_rows(), plan.parts[i]);
  results.merge(o, ml, scoring, seed);
  compare("decode", pool, queries, results, seq, views, model, scale, seed);
}

// One item of one sequence, without parts.
static void decode_whole(const char* what, const Pool& pool, const Queries& queries, const Model& model, u32 seed) {
  const Shape& shape = pool.shape;
  const u32 length = pool.lengths[0];
  const Scoring scoring(model);
  Results results(shape, 1);
  std::vector<RkDecodeItem> plan;
  for (u32 h = 0; h < shape.items(); ++h)
    plan.push_back({first_token(shape), pool.starts[0], h, 0, length, RK_DIRECT, length, 0});
  const Memory<RkDecodeItem> items(plan);
  const Memory<u32> table(pool.table.copy());
  const Memory<float> o(1), ml(1);
  const Decoder decode = decoder(shape);
  const double scale = 1 / std::sqrt((double)shape.dim);
  launch(decode.name, (u32)items.size(), 1, decode.threads, decode.shared, seed,
         decode_args(pool, queries, results, o, ml, items, table, scoring, scale, seed));
  compare(what, pool, queries, results, {0}, {{length, length}}, model, scale, seed);
}

// Values of the first keys are much larger than all others, and their weights become small: at once,
// or by less than 2^8 from tile to tile of a warp.
void test_fading(const Shape& shape, u32 seed) {
  if (!is_wanted({decoder(shape).name})) return;
  for (float slope : {1.f, 0.08f}) {
    Random r(seed);
    const Pool pool(shape, {400}, r, 0, true);
    const Queries queries(shape, 1, r, 1e-3);
    Model model;
    model.slopes.assign(shape.q_heads(), slope);
    for (u32 t = 0; t < 16; ++t) pool.enlarge(0, t, std::ldexp(1.f, slope == 1.f ? 60 : 36));
    decode_whole("fading", pool, queries, model, seed);
  }
}

// The ranges within which decode is exact: of a query's elements, and of weights times scales of
// values, where the largest ones meet zeros.
void test_ranges(const Shape& shape, u32 seed) {
  if (!is_wanted({decoder(shape).name})) return;
  Random r(seed);
  const Pool pool(shape, {40}, r, 0, true);
  const Queries queries(shape, 1, r);
  for (u32 h = 0; h < shape.q_heads(); ++h) queries.q[h * shape.dim] = shape.type.encode(std::ldexp(1., 26));
  for (u32 t = 0; t < 40; ++t)
    for (u32 h = 0; h < shape.kv_heads; ++h) {
      pool.k[pool.place(0, t, h, shape.dim)] = 0;
      if (t == 5) memset(pool.v.get() + pool.place(0, t, h, shape.dim), 0, shape.dim);
    }
  // Other scales of values differ by 1e5.
  pool.enlarge(0, 5, 8.f);
  decode_whole("ranges", pool, queries, Model(), seed);
}

// A row of a tree sees itself, and of the rows before it a random one and all that this one sees.
static u32 tree_row(const std::vector<u32>& before, Random& r) {
  const u32 index = (u32)before.size();
  return 1u << index | (index && draw(r, 5) ? before[draw(r, index)] : 0);
}

// `chunk[s]` new tokens at the end of each sequence; `trees`: these are trees.
void test_extend(const Shape& shape, const std::vector<u32>& lengths, const std::vector<u32>& chunk, u32 most_splits, const Model& model,
                 bool trees, u32 seed) {
  if (!is_wanted({extender(shape), merger(shape)})) return;
  Random r(seed);
  const Pool pool(shape, lengths, r);
  const Scoring scoring(model);
  std::vector<u32> seq, begins, masks, low;
  std::vector<View> views;
  for (u32 s = 0; s < lengths.size(); ++s) {
    begins.push_back((u32)seq.size());
    const u32 before = lengths[s] - chunk[s];
    std::vector<u32> tree;
    low.push_back(scoring.low(before + 1));
    for (u32 t = 0; t < low[s]; ++t) pool.spoil(s, t);
    for (u32 t = 0; t < chunk[s]; ++t) {
      seq.push_back(s);
      if (trees) tree.push_back(tree_row(tree, r));
      views.push_back(trees ? View{before, before + (u32)__builtin_popcount(tree[t]), before, tree[t]} : View{before + t + 1, before + t + 1});
    }
    masks.insert(masks.end(), tree.begin(), tree.end());
  }
  const Queries queries(shape, (u32)seq.size(), r);
  Results results(shape, (u32)seq.size());
  std::vector<RkTile> tiles;
  std::vector<std::vector<u32>> parts(seq.size() * shape.kv_heads);
  u32 part = 0;
  const u32 most_rows = sizes(shape).rows;
  for (u32 s = 0; s < lengths.size(); ++s)
    for (u32 h = 0; h < shape.kv_heads; ++h)
      for (u32 row = 0; row < chunk[s] * shape.group;) {
        // A tile that is split holds whole tokens, whose rows a merge item can name; one that writes directly ends
        // anywhere.
        const u32 first = trees ? low[s] : scoring.low(lengths[s] - chunk[s] + row / shape.group + 1);
        const auto ranges = row % shape.group == 0 ? cut(first, lengths[s], most_splits, r) : cut(first, lengths[s], 1, r);
        const bool alone = ranges.size() == 1;
        const u32 rows =
            std::min(alone ? most_rows - draw(r, 2) : most_rows / shape.group * shape.group, chunk[s] * shape.group - row);
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
  Memory<float> o((size_t)part * shape.value_dim), ml((size_t)part * 2);
  const double scale = 0.9 / std::sqrt((double)shape.dim);
  Memory<RkTile> given(tiles);
  const Memory<u32> table(without_blocks(pool, low)), of_tree(masks);
  Extra extra;
  if (trees) extra.trees = before(of_tree.get(), first_token(shape));
  launch(extender(shape), (u32)tiles.size(), 1, 128, shared_rows(shape), seed,
         tile_args(pool, queries, results, o, ml, given, table, extra, scoring, scale, seed));
  for (u32 i = 0; i < parts.size(); ++i)
    if (!parts[i].empty()) results.merge_row(i * shape.group, shape.group, parts[i]);
  results.merge(o, ml, scoring, seed);
  compare(trees ? "trees" : "extend", pool, queries, results, seq, views, model, scale, seed);
}

// Sequences that share `shared` blocks, and one that has them to itself: the prefix once for the sharers, and in between
// what each sequence has beside it.
void test_cascade(const Shape& shape, const std::vector<u32>& lengths, u32 shared, u32 most_splits, const Model& model, u32 seed) {
  if (!is_wanted({cascader(shape), merger(shape)})) return;
  Random r(seed);
  const Pool pool(shape, lengths, r, shared);
  const Scoring scoring(model);
  const u32 n = (u32)lengths.size(), prefix = shared * shape.block;
  const Queries queries(shape, n, r);
  Results results(shape, n);
  std::vector<u32> members(n);
  for (u32 s = 0; s < n; ++s) members[s] = s;
  std::shuffle(members.begin(), members.end(), r);
  DecodePlan rests;
  for (u32 s = 0; s < n; ++s) {
    const bool alone = s == members[n - 1];
    rests.add(pool, s, std::max(alone ? 0 : prefix, scoring.low(lengths[s])), alone, most_splits, r);
  }
  std::vector<RkTile> tiles;
  for (const RkDecodeItem& i : rests.items) {
    const auto member = std::find(members.begin(), members.end(), i.seq - first_token(shape));
    tiles.push_back({i.table, i.kv_head, i.first, i.end, i.part, 0, shape.group, (u32)(member - members.begin()), 0});
  }
  u32 part = rests.rows;
  const u32 most_rows = sizes(shape).rows / shape.group * shape.group;
  for (u32 h = 0; h < shape.kv_heads; ++h)
    for (u32 row = 0; row < (n - 1) * shape.group;) {
      const u32 rows = std::min(most_rows, (n - 1) * shape.group - row);
      if (rows <= shape.group) {                            // a single sharer has its prefix as a rest
        const u32 seq = members[row / shape.group];
        tiles.push_back({pool.starts[members[0]], h, std::min(prefix, scoring.low(lengths[seq])), prefix, FIRST_PART + part, 0, rows,
                         row / shape.group, 0});
        rests.parts[seq * shape.kv_heads + h].push_back(part);
        part += rows;
        break;
      }
      u32 low = prefix;
      for (u32 m = row / shape.group; m < (row + rows) / shape.group; ++m) low = std::min(low, scoring.low(lengths[members[m]]));
      for (const auto& range : cut(low, prefix, most_splits, r)) {
        tiles.push_back({pool.starts[members[0]], h, range.first, range.second, FIRST_PART + part, row, rows, 0, 0});
        for (u32 m = row / shape.group; m < (row + rows) / shape.group; ++m)
          rests.parts[members[m] * shape.kv_heads + h].push_back(part + m * shape.group - row);
        part += rows;
      }
      row += rows;
    }
  std::shuffle(tiles.begin(), tiles.end(), r);
  Memory<float> o((size_t)part * shape.value_dim), ml((size_t)part * 2);
  Memory<RkTile> given(tiles);
  std::vector<u32> lengths_of;
  for (u32 m : members) lengths_of.push_back(lengths[m]);
  Memory<u32> tokens(members), contexts(lengths_of), table(pool.table.copy());
  for (u32 m = 0; m < n; ++m) tokens[m] += first_token(shape);
  const double scale = 1 / std::sqrt((double)shape.dim);
  Extra extra;
  extra.members = tokens.get();
  extra.contexts = contexts.get();
  launch(cascader(shape), (u32)tiles.size(), 1, 128, std::max(shared_rows(shape), decoder(shape).shared), seed,
         tile_args(pool, queries, results, o, ml, given, table, extra, scoring, scale, seed));
  for (u32 i = 0; i < rests.parts.size(); ++i)
    if (!rests.parts[i].empty()) results.merge_row(i * shape.group, shape.group, rests.parts[i]);
  results.merge(o, ml, scoring, seed);
  std::vector<u32> seq(n);
  std::vector<View> views(n);
  for (u32 s = 0; s < n; ++s) {
    seq[s] = s;
    views[s] = {lengths[s], lengths[s]};
  }
  compare("cascade", pool, queries, results, seq, views, model, scale, seed);
}

// Rows that saw no key: out 0, lse -inf; a tile over an empty range, direct and in part; a merge of nothing.
void test_empty(const Shape& shape, u32 seed) {
  if (!is_wanted({decoder(shape).name, extender(shape), merger(shape)})) return;
  Random r(seed);
  const Pool pool(shape, {20}, r);
  const Queries queries(shape, 1, r);
  const double scale = 1;
  const Scoring scoring{Model()};
  const Memory<u32> table(pool.table.copy());
  for (int kind = 0; kind < 4; ++kind) {
    Results results(shape, 1);
    Memory<float> o((size_t)128 * shape.value_dim), ml(256);
    if ((shape.latent_items || shape.pairs) && kind % 2) continue;   // only decode has them
    const u32 part = kind < 2 ? RK_DIRECT : FIRST_PART, token = first_token(shape);
    const Decoder decode = decoder(shape);
    for (u32 h = 0; h < shape.items(); ++h) {
      std::vector<RkDecodeItem> items = {{token, pool.starts[0], h, 16, 16, part, 20, 0}};
      std::vector<RkTile> tiles = {{pool.starts[0], h, 16, 20, part, 0, shape.group, token, 10}};
      Memory<RkDecodeItem> i(items);
      Memory<RkTile> t(tiles);
      if (kind % 2)
        launch(extender(shape), 1, 1, 128, shared_rows(shape), seed,
               tile_args(pool, queries, results, o, ml, t, table, Extra(), scoring, scale, seed));
      else
        launch(decode.name, 1, 1, decode.threads, decode.shared, seed,
               decode_args(pool, queries, results, o, ml, i, table, scoring, scale, seed));
      if (kind >= 2) results.merge_row(h * shape.item_rows(), shape.item_rows(), h ? std::vector<u32>{} : std::vector<u32>{0, 0});
    }
    results.merge(o, ml, scoring, seed);
    bool zero = true;
    for (size_t i = 0; i < results.out.size(); ++i) zero = zero && (results.out[i] & 0x7fff) == 0;
    for (size_t i = 0; i < results.lse.size(); ++i) zero = zero && results.lse[i] == -INFINITY;
    check(zero, "empty %d %s schedule %u", kind, shape.text().c_str(), seed);
  }
}

// A stored NaN of one column of the values makes that column of the outputs NaN, and no other.
void test_nan(const Shape& shape, u32 seed) {
  if (!is_wanted({decoder(shape).name, extender(shape)})) return;
  Random r(seed);
  const Pool pool(shape, {20}, r);
  const Queries queries(shape, 1, r);
  const Scoring scoring{Model()};
  const Memory<u32> table(pool.table.copy());
  const u32 column = draw(r, shape.value_dim), token = first_token(shape);
  for (u32 h = 0; h < shape.kv_heads; ++h) pool.v[pool.place(0, 3, h, shape.value_dim) + column] = draw(r, 2) ? 0x7f : 0xff;
  for (int extend = 0; extend < 2; ++extend) {
    Results results(shape, 1);
    Memory<float> o(1), ml(1);
    std::vector<RkDecodeItem> items;
    std::vector<RkTile> tiles;
    for (u32 h = 0; h < shape.kv_heads; ++h) {
      items.push_back({token, pool.starts[0], h, 0, 20, RK_DIRECT, 20, 0});
      tiles.push_back({pool.starts[0], h, 0, 20, RK_DIRECT, 0, shape.group, token, 20});
    }
    Memory<RkDecodeItem> i(items);
    Memory<RkTile> t(tiles);
    if (extend)
      launch(extender(shape), shape.kv_heads, 1, 128, shared_rows(shape), seed,
             tile_args(pool, queries, results, o, ml, t, table, Extra(), scoring, 1, seed));
    else
      launch(decoder(shape).name, shape.kv_heads, 1, 128, decoder(shape).shared, seed,
             decode_args(pool, queries, results, o, ml, i, table, scoring, 1, seed));
    bool right = true;
    for (size_t at = 0; at < results.out.size(); ++at) {
      const double got = shape.type.decode(results.out[at]);
      right = right && (got != got) == (at % shape.value_dim == column);
    }
    check(right, "NaN %d %s schedule %u", extend, shape.text().c_str(), seed);
  }
}

// Partial rows of any number, magnitude and order, some of them empty, against their sum in 64 bits.
void test_merge(const Shape& shape, u32 seed) {
  if (!is_wanted({merger(shape)})) return;
  Random r(seed);
  const Scoring scoring{Model()};
  const u32 rows = shape.item_rows(), counts[] = {0, 1, 2, 3 + draw(r, 15), 18 + draw(r, 20), 70};
  Results results(shape, 6 * shape.items());
  u32 parts = 0;
  for (u32 count : counts) parts += count;
  Memory<float> o((size_t)parts * rows * shape.value_dim), ml((size_t)parts * rows * 2);
  std::vector<u32> bases(parts);
  for (u32 i = 0; i < parts; ++i) bases[i] = i * rows;
  std::shuffle(bases.begin(), bases.end(), r);
  for (u32 row = 0; row < parts * rows; ++row) {
    const bool empty = draw(r, 6) == 0;
    ml[row * 2] = empty ? -INFINITY : (float)(normal(r) * (row % 2 ? 4 : 240));
    ml[row * 2 + 1] = empty ? 0.f : (float)(0.5 + std::fabs(normal(r)) * 3);
    for (u32 d = 0; d < shape.value_dim; ++d) o[(size_t)row * shape.value_dim + d] = empty ? 0.f : (float)normal(r);
  }
  u32 next = 0;
  for (u32 i = 0; i < 6; ++i) {
    results.merge_row(i * shape.q_heads(), rows,
                      std::vector<u32>(bases.begin() + next, bases.begin() + next + counts[i]));
    next += counts[i];
  }
  results.merge(o, ml, scoring, seed);
  Error error;
  for (u32 i = 0; i < 6; ++i)
    for (u32 row = 0; row < rows; ++row) {
      const RkMergeItem& item = results.items[i];
      double sum = 0, top = -INFINITY;
      std::vector<double> want(shape.value_dim, 0);
      const auto part = [&](u32 p) { return (size_t)(results.list[item.first + p] - FIRST_PART) + row; };
      for (u32 p = 0; p < item.count; ++p) top = std::max(top, (double)ml[part(p) * 2]);
      for (u32 p = 0; p < item.count; ++p) {
        const size_t from = part(p);
        const double weight = ml[from * 2] == -INFINITY ? 0 : std::exp2(ml[from * 2] - top);
        sum += weight * ml[from * 2 + 1];
        for (u32 d = 0; d < shape.value_dim; ++d) want[d] += weight * o[from * shape.value_dim + d];
      }
      for (double& w : want) w = sum > 0 ? w / sum : 0;
      const size_t at = item.row - results.first_row() + row;
      error.add(want, results.out.get() + at * shape.value_dim, shape.type,
                sum > 0 ? (top + std::log2(sum)) * lse_scale(seed) : -INFINITY, results.lse[at]);
    }
  check(error.within(shape.type.tolerance()), "merge %s schedule %u: error %.2e, worst row %.2e, lse %.1e",
        shape.text().c_str(), seed, error.relative(), error.worst_row, error.lse);
}
