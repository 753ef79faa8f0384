// What each instruction does, by its name. Names are those of the PTX ISA without hints (cache policies, `.uni`).
#include <cmath>
#include <map>

#include "ptx.hpp"
#include "races.hpp"

namespace ptx {
namespace {

#define VALUE(name, T, ...) \
  {name, [](Lane& l, const Instruction& i) { const T a = l.get<T>(i.at[1]); l.set(i.at[0], __VA_ARGS__); }}
#define BINARY(name, T, ...) \
  {name, [](Lane& l, const Instruction& i) { \
     const T a = l.get<T>(i.at[1]), b = l.get<T>(i.at[2]); l.set(i.at[0], __VA_ARGS__); }}
#define SHIFT(name, T, ...) \
  {name, [](Lane& l, const Instruction& i) { \
     const T a = l.get<T>(i.at[1]); const u32 b = l.get<u32>(i.at[2]); l.set(i.at[0], b < sizeof(T) * 8 ? (T)(__VA_ARGS__) : (T)0); }}
#define TERNARY(name, T, ...) \
  {name, [](Lane& l, const Instruction& i) { \
     const T a = l.get<T>(i.at[1]), b = l.get<T>(i.at[2]), c = l.get<T>(i.at[3]); l.set(i.at[0], __VA_ARGS__); }}
#define SELECT(name, T) \
  {name, [](Lane& l, const Instruction& i) { l.set(i.at[0], l.get<T>(i.at[l.is_true(i.at[3]) ? 1 : 2])); }}
#define COMPARE(T, kind) \
  BINARY("setp.eq." kind, T, a == b), BINARY("setp.ne." kind, T, a != b && a == a && b == b), \
  BINARY("setp.lt." kind, T, a < b), BINARY("setp.le." kind, T, a <= b), \
  BINARY("setp.gt." kind, T, a > b), BINARY("setp.ge." kind, T, a >= b)
#define WHOLE(T, signed_kind, unsigned_kind, bits) \
  BINARY("add." signed_kind, T, (T)(a + b)), BINARY("sub." signed_kind, T, (T)(a - b)), BINARY("mul.lo." signed_kind, T, (T)((u64)a * b)), \
  TERNARY("mad.lo." signed_kind, T, (T)((u64)a * b + c)), BINARY("div." unsigned_kind, T, divide(a, b)), BINARY("rem." unsigned_kind, T, (T)(a - divide(a, b) * b)), \
  BINARY("min." unsigned_kind, T, a < b ? a : b), BINARY("max." unsigned_kind, T, a > b ? a : b), \
  BINARY("and." bits, T, (T)(a & b)), BINARY("or." bits, T, (T)(a | b)), BINARY("xor." bits, T, (T)(a ^ b)), VALUE("not." bits, T, (T)~a), \
  SHIFT("shl." bits, T, a << b), SHIFT("shr." unsigned_kind, T, a >> b), VALUE("mov." unsigned_kind, T, a), COMPARE(T, unsigned_kind)

template <class T> T divide(T a, T b) {
  if (b == 0) simt::die("a division by zero");
  return a / b;
}

void whole_warp(u32 mask) {
  if (mask != 0xffffffff) simt::die("an operation of a part of a warp");
}

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }

u32 permuted(u32 a, u32 b, u32 selector) {
  const u64 both = (u64)b << 32 | a;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 pick = selector >> (4 * i) & 15, byte = (u32)(both >> (pick % 8 * 8)) & 255;
    result |= (pick < 8 ? byte : byte >> 7 ? 255u : 0u) << (8 * i);
  }
  return result;
}

// Bits of `a` put into `b` at `first`.
u32 inserted(u32 a, u32 b, u32 first, u32 count) {
  const u64 mask = ((1ull << count) - 1) << first;
  return (u32)((b & ~mask) | ((u64)a << first & mask));
}

u32 reversed(u32 x) {
  u32 result = 0;
  for (u32 i = 0; i < 32; ++i) result |= (x >> i & 1) << (31 - i);
  return result;
}

u8* shared(const Lane& l, u64 address, size_t bytes) {
  if (address % bytes) simt::die("an access to shared memory is not aligned to its size");
  if (address + bytes <= l.entry->statics) return l.statics + address;
  const u64 base = dynamic_base(*l.entry);
  if (address < base || address + bytes > base + simt::dynamic_shared_bytes()) simt::die("an access outside of shared memory");
  return l.dynamics + (address - base);
}

// Where the access at `address` goes; it is looked at for races.
const u8* source(const Lane& l, const Instruction& i, u64 address, size_t bytes) {
  if (i.access.space == Space::PARAM) return l.params + address;
  if (i.access.space == Space::SHARED) {
    const u8* p = shared(l, address, bytes);
    races::read(address, bytes);
    return p;
  }
  if (address % bytes) simt::die("an access to global memory is not aligned to its size");
  races::read_global(address, bytes);
  return reinterpret_cast<const u8*>(address);
}

void load(Lane& l, const Instruction& i) {
  const u32 n = i.access.count, width = i.access.bytes;
  const u8* p = source(l, i, l.get<u64>(i.at[n]) + (u64)i.offset, n * width);
  for (u32 k = 0; k < n; ++k) {
    u64 value = 0;
    memcpy(&value, p + k * width, width);
    l.set(i.at[k], value);
  }
}

void store(Lane& l, const Instruction& i) {
  const u32 n = i.access.count, width = i.access.bytes;
  const u64 address = l.get<u64>(i.at[0]) + (u64)i.offset;
  u8* p = reinterpret_cast<u8*>(address);
  if (i.access.space == Space::SHARED) {
    p = shared(l, address, n * width);
    races::write(address, n * width);
  } else {
    if (address % (n * width)) simt::die("an access to global memory is not aligned to its size");
    races::write_global(address, n * width);
  }
  for (u32 k = 0; k < n; ++k) memcpy(p + k * width, &l.registers[i.at[1 + k]], width);
}

template <u32 SIZE> void copy_async(Lane& l, const Instruction& i) {
  const u64 to = l.get<u64>(i.at[0]), bytes = l.get<u32>(i.at[3]);
  if (i.offset || l.get<u32>(i.at[2]) != SIZE || (bytes != 0 && bytes != SIZE)) simt::die("an asynchronous copy of another size");
  void* p = shared(l, to, SIZE);
  const u64 from = l.get<u64>(i.at[1]);
  races::copy_started(to, SIZE);
  races::read_global(from, bytes);
  simt::copy_async(p, reinterpret_cast<const void*>(from), SIZE, bytes == SIZE);
}

template <bool TRANSPOSED> void load_matrix(Lane& l, const Instruction& i) {
  const u64 address = l.get<u32>(i.at[4]) + (u64)i.offset;
  simt::Matrix m = {shared(l, address, 16), {}};
  races::read(address, 16);
  simt::together(TRANSPOSED ? simt::Op::MATRIX_TRANSPOSED : simt::Op::MATRIX, &m);
  for (u32 k = 0; k < 4; ++k) l.set(i.at[k], m.r[k]);
}

template <bool BF16> void multiply(Lane& l, const Instruction& i) {
  float d[4];
  u32 a[4];
  for (u32 k = 0; k < 4; ++k) {
    d[k] = l.get<float>(i.at[10 + k]);
    a[k] = l.get<u32>(i.at[4 + k]);
  }
  simt::Mma m = {d, a, {l.get<u32>(i.at[8]), l.get<u32>(i.at[9])}};
  simt::together(BF16 ? simt::Op::MMA_BF16 : simt::Op::MMA_F16, &m);
  for (u32 k = 0; k < 4; ++k) l.set(i.at[k], d[k]);
}

// at: result, predicate, value, lane or mask of lanes, 31, mask of the warp.
template <bool XOR> void shuffle(Lane& l, const Instruction& i) {
  whole_warp(l.get<u32>(i.at[5]));
  if (l.get<u32>(i.at[4]) != 31) simt::die("a shuffle within a part of a warp");
  const u32 by = l.get<u32>(i.at[3]), from = XOR ? simt::here().thread ^ by : by;
  simt::Shuffle s = {l.get<u32>(i.at[2]), from % 32, 0};
  simt::together(simt::Op::SHUFFLE, &s);
  l.set(i.at[0], s.result);
  l.set(i.at[1], true);
}

void ballot(Lane& l, const Instruction& i) {
  whole_warp(l.get<u32>(i.at[2]));
  simt::Shuffle s = {l.is_true(i.at[1]), 0, 0};
  simt::together(simt::Op::BALLOT, &s);
  l.set(i.at[0], s.result);
}

void warp_barrier(Lane& l, const Instruction& i) {
  whole_warp(l.get<u32>(i.at[0]));
  simt::together(simt::Op::BARRIER, nullptr);
}

void block_barrier(Lane& l, const Instruction& i) {
  if (l.get<u32>(i.at[0]) != 0 || i.at[1] != 0) simt::die("a barrier other than the whole block's first");
  simt::block_barrier();
}

void copy_wait(Lane& l, const Instruction& i) {
  races::copy_wait(l.get<u32>(i.at[0]));
  simt::copy_wait(l.get<int>(i.at[0]));
}

void copy_commit(Lane&, const Instruction&) {
  races::copy_group();
  simt::copy_commit();
}

// The first source of a pair is its upper half.
template <bool BF16> void pack(Lane& l, const Instruction& i) {
  l.set(i.at[0], rk_pack<BF16>(l.get<float>(i.at[2]), l.get<float>(i.at[1])));
}

const std::map<std::string, Execute> OPERATIONS = {
    WHOLE(u16, "s16", "u16", "b16"), WHOLE(u32, "s32", "u32", "b32"), WHOLE(u64, "s64", "u64", "b64"),
    COMPARE(short, "s16"), COMPARE(i32, "s32"), COMPARE(i64, "s64"), COMPARE(float, "f32"),
    BINARY("setp.leu.f32", float, !(a > b)), BINARY("setp.neu.f32", float, a != b),
    BINARY("mul.wide.u16", u16, (u32)a * b), BINARY("mul.wide.u32", u32, (u64)a * b),
    BINARY("add.f32", float, a + b), BINARY("sub.f32", float, a - b), BINARY("mul.f32", float, a * b),
    BINARY("max.f32", float, std::fmax(a, b)), TERNARY("fma.rn.f32", float, std::fma(a, b, c)), VALUE("neg.f32", float, -a),
    VALUE("rcp.rn.f32", float, 1.f / a), VALUE("rcp.approx.ftz.f32", float, 1.f / flushed(a)), BINARY("div.rn.f32", float, a / b),
    TERNARY("fma.rn.bf16x2", u32, rk_fma2<true>(a, b, c)), TERNARY("fma.rn.f16x2", u32, rk_fma2<false>(a, b, c)), VALUE("ex2.approx.ftz.f32", float, flushed(std::exp2(flushed(a)))),
    VALUE("lg2.approx.ftz.f32", float, std::log2(flushed(a))),
    SELECT("selp.b32", u32), SELECT("selp.f32", float), SELECT("selp.u32", u32), SELECT("selp.b64", u64), SELECT("selp.u16", u16),
    BINARY("setp.eq.b32", u32, a == b), BINARY("setp.nan.f32", float, a != a || b != b), BINARY("setp.num.f32", float, a == a && b == b),
    BINARY("or.pred", u64, a || b), BINARY("and.pred", u64, a && b), VALUE("neg.s32", u32, 0 - a), VALUE("not.pred", u64, !a), VALUE("mov.pred", u64, a != 0),
    VALUE("mov.f32", float, a), VALUE("mov.b32", u32, a), VALUE("cvta.to.global.u64", u64, a),
    BINARY("mov.b64", u32, (u64)b << 32 | a),
    VALUE("cvt.u64.u32", u32, (u64)a), VALUE("cvt.u32.u64", u64, (u32)a), VALUE("cvt.u16.u32", u32, (u16)a),
    VALUE("cvt.u32.u16", u16, (u32)a), VALUE("cvt.u64.u16", u16, (u64)a), VALUE("cvt.rn.f32.s32", i32, (float)a),
    VALUE("cvt.rn.f32.u16", u16, (float)a), VALUE("cvt.rn.f32.u32", u32, (float)a),
    VALUE("popc.b32", u32, (u32)__builtin_popcount(a)), VALUE("brev.b32", u32, reversed(a)), VALUE("bfind.shiftamt.u32", u32, a ? (u32)__builtin_clz(a) : 0xffffffffu),
    TERNARY("prmt.b32", u32, permuted(a, b, c)),
    {"bfi.b32", [](Lane& l, const Instruction& i) {
       l.set(i.at[0], inserted(l.get<u32>(i.at[1]), l.get<u32>(i.at[2]), l.get<u32>(i.at[3]), l.get<u32>(i.at[4]))); }},
    {"bra", [](Lane& l, const Instruction& i) { l.next = l.entry->code.data() + i.at[0]; }},
    {"ret", [](Lane& l, const Instruction&) { l.next = nullptr; }},
    {"bar.sync", block_barrier}, {"bar.warp.sync", warp_barrier}, {"vote.sync.ballot.b32", ballot},
    {"shfl.sync.idx.b32", shuffle<false>}, {"shfl.sync.bfly.b32", shuffle<true>},
    {"cvt.rn.bf16x2.f32", pack<true>}, {"cvt.rn.f16x2.f32", pack<false>},
    {"cp.async.cg.shared.global", copy_async<16>}, {"cp.async.ca.shared.global", copy_async<4>}, {"cp.async.commit_group", copy_commit}, {"cp.async.wait_group", copy_wait},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", load_matrix<false>},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", load_matrix<true>},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply<true>},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply<false>},
};

const char* const HINTS[] = {".L1::no_allocate", ".L2::128B", ".uni"};

void drop(std::string* name, const std::string& part) {
  const size_t at = name->find(part);
  if (at != std::string::npos) name->erase(at, part.size());
}

// ld and st: [.space] [.vN] .type
bool read_access(std::string name, Access* access) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  access->space = has(".param") ? Space::PARAM : has(".shared") ? Space::SHARED : Space::GLOBAL;
  access->count = has(".v4") ? 4 : has(".v2") ? 2 : 1;
  for (const char* part : {".param", ".shared", ".global", ".v4", ".v2"}) drop(&name, part);
  const std::string type = name.substr(2);
  access->bytes = type == ".u16" ? 2 : type == ".u32" || type == ".f32" ? 4 : type == ".u64" ? 8 : 0;
  return access->bytes != 0;
}

}  // namespace

Execute find_operation(const std::string& full, Access* access) {
  std::string name = full;
  for (const char* hint : HINTS) drop(&name, hint);
  const std::string kind = name.substr(0, 3);
  if (kind == "ld." || kind == "st.") return !read_access(name, access) ? nullptr : kind == "ld." ? load : store;
  const auto found = OPERATIONS.find(name);
  return found == OPERATIONS.end() ? nullptr : found->second;
}

}  // namespace ptx
