"""Plants one bug at a time in the kernels and runs the simulator's tests, which have to fail: mutate.py [WORD]..., only bugs whose names
contain a word. One barrier or one wait at a time is left out of the compiled PTX too (names begin with `ptx`). Bugs of the crate (`crate`) are
planted in a copy of the sources, whose tests run on the stand-in driver. The exit status is the number of bugs that no test caught; those with a
reason below may live. `--texts` only checks that the text of every bug stands in its file once."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "loom_tests"))
from scratch import Tree

HERE = pathlib.Path(__file__).parent
OUT = HERE.parent / "target/kernel-mutants"
CRATE = "crates/radixkv-cuda/src"
CXX = os.environ.get("CXX", "c++")
FLAGS = "-std=c++17 -O1 -fno-strict-aliasing -w -DRK_HOST_SIM".split()
TESTS = ["sim/fiber", "sim/guard", "sim/simt", "sim/queue", "sim/ptx", "sim/isa", "sim/races", "sim/test/attention",
         "sim/test/movement", "sim/test/queues", "sim/test/programs", "sim/test/main"]
# Seconds of a processor: a program that takes more never ends.
TIMEOUT = 120

# (what, file, text that occurs there once, text in its place, why it may live)
MUTANTS = [
    # decode
    ("decode: slots behind the end are not zeroed", "item.cuh", "const bool valid = key + row >= first && key + row < end;", "const bool valid = key + row >= first;"),
    ("decode: waits one group short", "item.cuh", "rk_copy_wait<(int)S::STAGES - 2>();", "rk_copy_wait<(int)S::STAGES - 1>();"),
    ("decode: no barrier of the warp after the wait", "item.cuh", "    rk_warp_barrier();  ", "    "),
    ("decode: no barrier before the rings are reused", "item.cuh", "  rk_block_barrier();                                       // the rings", "  // the rings"),
    ("decode: no barrier before the merge reads", "item.cuh", "  rk_block_barrier();\n  write_item", "  write_item"),
    ("decode: values read without the swizzle", "item.cuh", "  const u32 at = L::at(lane / 8 % 2 * 8 + lane % 8, lane / 16);", "  const u32 at = (lane / 8 % 2 * 8 + lane % 8) * L::ROW_BYTES + lane / 16 * 16;"),
    ("decode: mask off by one", "item.cuh", "place < to ?", "place <= to ?"),
    ("decode: no mask", "item.cuh", "place < to ?", "place < 16 ?"),
    ("decode: sum is not rescaled", "item.cuh", "row[r].sum = row[r].sum * factor[r] +", "row[r].sum = row[r].sum +"),
    ("decode: values are not rescaled", "item.cuh", "d[2] *= factor[1]; d[3] *= factor[1];", ""),
    ("decode: one tile too many", "item.cuh", "tile < tiles; ++n", "tile <= tiles; ++n"),
    ("decode: table window is filled once", "item.cuh", "if ((n & 31) == 0) {", "if (n == 0) {"),
    ("decode: table read past the sequence", "item.cuh", "if (mine < tiles) blocks", "blocks"),
    ("decode: maximum over half of the quad", "item.cuh", "    top = rk_max(top, rk_shuffle_xor(top, 2));\n    top = rk_max(row", "    top = rk_max(row"),
    ("decode: sum over half of the quad", "item.cuh", "    sum += rk_shuffle_xor(sum, 2);\n", ""),
    ("decode: divergent shuffle", "item.cuh", "    sum += rk_shuffle_xor(sum, 2);", "    if (lane < 16) sum += rk_shuffle_xor(sum, 2);"),
    ("decode: refills the slot it reads", "item.cuh", "slot == 0 ? S::STAGES - 1 : slot - 1)", "slot)"),
    ("decode: query stride ignored", "item.cuh", "(u64)item.seq * a.q_stride", "(u64)item.seq * a.q_heads * D"),
    ("decode: output row of the wrong head", "item.cuh", "item.kv_head * HEADS * group + query;", "item.kv_head + query;"),
    ("decode: log-sum without its unit", "item.cuh", "log_sum(top, sum) * a.lse_scale", "log_sum(top, sum)"),
    ("decode: a warp without keys counts", "tile.cuh", "return max == -RK_INF ? 0.f : rk_exp2(max - top);", "return rk_exp2(max - top);"),
    ("decode: scale forgotten", "item.cuh", " * (a.scale_log2 * q.unit[i / 4]) : a.scale_log2;", " : 1.f;"),
    ("decode: an idle item is worked on", "decode.cu", "if (item.kv_head == RK_IDLE) return;", ""),
    ("decode: a maximum that never rises", "item.cuh", "top = rk_max(row[r].max, top);", "top = row[r].max == -RK_INF ? top : row[r].max;"),
    ("decode: the maximum of the tile alone", "item.cuh", "top = rk_max(row[r].max, top);", ""),
    ("decode: a maximum of zero and more", "item.cuh", "top = rk_max(row[r].max, top);", "top = rk_max(rk_max(row[r].max, top), 0.f);"),
    ("decode: the maximum of the first warp", "item.cuh", "top = rk_max(top, state[w * 16 + r].x);", "top = w == 0 ? state[r].x : top;"),
    ("decode: one entry past the table", "item.cuh", "if (mine < tiles) blocks", "if (mine <= tiles) blocks"),
    ("decode: rows of a block in 16 bits", "item.cuh", "(u64)row * plane.token_stride", "(u64)(u16)(row * plane.token_stride)"),
    ("decode: query heads in 16 bits", "item.cuh", "(u64)item.kv_head * HEADS * group * D", "(u64)(u16)(item.kv_head * HEADS * group * D)"),
    ("decode: queries in 32 bits", "item.cuh", "(u64)item.seq * a.q_stride", "item.seq * a.q_stride"),
    ("decode: outputs in 32 bits", "item.cuh", "const u64 row = (u64)item.seq * a.q_heads +", "const u32 row = item.seq * a.q_heads +"),
    ("decode: partial rows in 32 bits", "item.cuh", "const u64 row = (u64)item.part + query;", "const u32 row = item.part + query;"),
    # shared by the attention kernels
    ("pages: head stride wrong", "tile.cuh", "(u64)kv_head * plane.head_stride", "(u64)kv_head * plane.token_stride"),
    ("pages: offset in 32 bits", "tile.cuh", "(u64)block * plane.block_stride", "(u32)(block * (u32)plane.block_stride)"),
    ("pages: place in the block ignored", "item.cuh", "in_block = key % kv.block_tokens;", "in_block = key % 16;"),
    ("pages: place in the block in 16 bits", "tile.cuh", "(u64)in_block * plane.token_stride", "(u64)(u16)(in_block * plane.token_stride)"),
    ("pages: head in 16 bits", "tile.cuh", "(u64)kv_head * plane.head_stride", "(u64)(u16)(kv_head * plane.head_stride)"),
    ("parts: sum without its factor", "tile.cuh", "sum = rk_fma(part_sum, factor, sum);", "sum += part_sum;"),
    # extend and cascade
    ("rows: no barrier before a stage is refilled", "rows.cuh", "    rk_block_barrier();                                     // this step's", "    rk_warp_barrier();  // this step's"),
    ("rows: waits one group short", "rows.cuh", "    rk_copy_wait<0>();\n    rk_block", "    rk_copy_wait<1>();\n    rk_block"),
    ("rows: slots behind the end are not zeroed", "rows.cuh", "const bool valid = (int)j < left &&", "const bool valid = true &&"),
    ("rows: causal mask off by one", "rows.cuh", "in_tree || (key < limit &&", "in_tree || (key <= limit &&"),
    ("rows: only the last step is masked", "rows.cuh", "if (key0 + S::KEYS > views[first_row] ||", "if (key0 + S::KEYS > end ||"),
    ("rows: masked by the last row's limit", "rows.cuh", "> views[first_row] ||", "> views[first_row + WARP_ROWS - 1] ||"),
    ("rows: limits of another warp", "rows.cuh", "a.scoring.window, row, key0, lane, s);", "a.scoring.window, lane / 4, key0, lane, s);"),
    ("rows: values are not rescaled", "rows.cuh", "state.o[m][n][i] *= factor[m * 2 + i / 2];", "state.o[m][n][i] *= factor[m * 2];"),
    ("rows: sum is not rescaled", "rows.cuh", "state.sum[r] = rk_fma(state.sum[r], factor[r], sum);", "state.sum[r] += sum;"),
    ("rows: a row that sees nothing", "rows.cuh", "top == -RK_INF ? 0.f : top * scale;", "top * scale;"),
    ("rows: keys read without the swizzle", "rows.cuh", "at_k = L::at(lane / 16 * 8 + lane % 8, lane / 8 % 2);", "at_k = (lane / 16 * 8 + lane % 8) * L::ROW_BYTES + lane / 8 % 2 * 16;"),
    ("rows: next keys into the stage in use", "rows.cuh", "stages + (step + 1) % 2 * S::STAGE", "stages + step % 2 * S::STAGE"),
    ("rows: table window is filled once", "rows.cuh", "if (step % (32 / GROUPS) == 0 &&", "if (step == 0 &&"),
    ("rows: no barrier before results are read back", "rows.cuh", "  rk_warp_barrier();\n#pragma unroll 1", "#pragma unroll 1"),
    ("rows: writes rows the tile does not have", "rows.cuh", "if (warp * ROWS + row >= tile.rows) break;", ""),
    ("rows: partial rows the tile does not have", "rows.cuh", "if (row >= tile.rows) continue;", ""),
    ("rows: packs scores of the wrong keys", "rows.cuh", "p[m][2] = rk_pack<BF16>(s[m][2 * k + 1][0]", "p[m][2] = rk_pack<BF16>(s[m][2 * k][0]"),
    ("rows: a maximum that never rises", "rows.cuh", "    const float base = top", "    if (state.max[r] != -RK_INF) top = state.max[r];\n    const float base = top"),
    ("rows: the maximum of the step alone", "rows.cuh", "    if ((top - state.max[r]) * scale < ROOM) top = state.max[r];\n", ""),
    ("rows: a maximum of zero and more", "rows.cuh", "float top = -RK_INF;", "float top = 0.f;"),
    ("rows: a maximum that stays too long", "rows.cuh", "constexpr float ROOM = 8.f;", "constexpr float ROOM = 200.f;"),
    ("rows: maximum over half of the quad", "rows.cuh", "    top = rk_max(top, rk_shuffle_xor(top, 2));\n", ""),
    ("rows: one entry past the table", "rows.cuh", "key + lane * 16 < end)\n      blocks", "key + lane * 16 <= end)\n      blocks"),
    ("rows: rows of a block in 16 bits", "rows.cuh", "(u64)row0 * plane.token_stride", "(u64)(u16)(row0 * plane.token_stride)"),
    ("rows: the second half of a page in 16 bits", "rows.cuh", "(u64)j * plane.token_stride", "(u64)(u16)(j * plane.token_stride)"),
    ("rows: query heads in 16 bits", "rows.cuh", "(u64)place.head * D", "(u64)(u16)(place.head * D)"),
    ("rows: queries in 32 bits", "rows.cuh", "place.token * a.q_stride", "(u32)place.token * a.q_stride"),
    ("rows: outputs in 32 bits", "rows.cuh", "*(rk_u4*)(a.out + (place.token * a.q_heads + place.head) * V", "*(rk_u4*)(a.out + ((u32)place.token * a.q_heads + place.head) * V"),
    ("rows: partial rows in 32 bits", "rows.cuh", "const u64 at = (u64)tile.part + row;", "const u32 at = tile.part + row;"),
    ("extend: first row of the tile ignored", "rows.cuh", "const u32 i = tile.row_first + row,", "const u32 i = row,"),
    ("cascade: members ignored", "rows.cuh", "KIND == Rows::SHARERS ? a.members[at] : at", "at"),
    ("cascade: sequences in the order of their members", "cascade.cu", "(u32)row_place<Rows::SHARERS>(a, tile, group, 0).token;", "tile.q_first;"),
    ("cascade: half of a group of sharers is taken for one", "cascade.cu", "if (tile.rows > group)", "if (tile.rows > 64)"),
    ("cascade: every tile is one of sharers", "cascade.cu", "if (tile.rows > group)", "if (tile.rows > 0)"),
    ("rows: limits of the first row only", "rows.cuh", "return {rk_min(tile.end, tile.visible + token), tile.visible + token, 0};", "return {rk_min(tile.end, tile.visible + row), tile.visible + row, 0};"),
    # elements of 8 bits, scorings, pages of any size, trees
    ("decode: keys before the window count", "item.cuh", "place >= from && place < to ?", "place < to ?"),
    ("decode: slots before the window are not zeroed", "item.cuh", "const bool valid = key + row >= first && key + row < end;", "const bool valid = key + row < end;"),
    ("decode: a window begins with a whole tile", "item.cuh", "whole_tiles(a.kv) ? item.first & ~15u : item.first;", "whole_tiles(a.kv) ? (item.first + 15) & ~15u : item.first;"),
    ("decode: scales of keys forgotten", "item.cuh", "scales[head * 32 + lane % 4 * 2 + half * 8 + i % 2] * (a.scale_log2 * q.unit[i / 4])", "a.scale_log2 * q.unit[i / 4]"),
    ("decode: scales of values forgotten", "item.cuh", "x[i] *= scales[(HEADS == 2 ? i / 4 * 32 : 0) + 16 + lane % 4 * 2 + i / 2 % 2 * 8 + i % 2];", "x[i] *= 1.f;"),
    ("decode: scales of keys on the values", "item.cuh", " : 0) + 16 + lane % 4 * 2 + i / 2", " : 0) + lane % 4 * 2 + i / 2"),
    ("decode: queries of 8-bit keys in their own order", "item.cuh", "q[r + 2] = four.y;", "q[r + 2] = four.x;"),
    ("decode: columns of 8-bit values in the order of 16-bit ones", "item.cuh", "rk_f4{o[2 * i][2 * r], o[2 * i + 1][2 * r], o[2 * i][2 * r + 1], o[2 * i + 1][2 * r + 1]};", "rk_f4{o[2 * i][2 * r], o[2 * i][2 * r + 1], o[2 * i + 1][2 * r], o[2 * i + 1][2 * r + 1]};"),
    ("decode: the entries of the next tokens are not kept", "item.cuh", "blocks = n == 0 ? entry(0) : ahead;", "blocks = entry(0);"),
    ("decode: scales of tokens are at offsets of 32 bits", "item.cuh", "copy_scales(scales, scale_offset(kv, block, rk_shuffle(in_block, from), kv_head)", "copy_scales(scales, (u32)scale_offset(kv, block, rk_shuffle(in_block, from), kv_head)"),
    ("decode: tokens of the odd tile from the even one", "item.cuh", "lanes = n % 2 * 16;", "lanes = 0;"),
    ("decode: scores of the first head of a pair for both", "item.cuh", "const int head = HEADS == 2 ? i / 4 : 0;", "const int head = 0;"),
    ("decode: values of a pair with the weights of both heads", "item.cuh", "weights[head], b[h][0]", "p, b[h][0]"),
    ("decode: outputs of the second head of a pair from other rows", "item.cuh", "query - group + 8", "query - group + 7"),
    ("decode: the second head of a pair beside the first", "item.cuh", "chunk / EACH * plane.head_stride", "chunk / EACH * D"),
    ("decode: slopes of the first head", "item.cuh", "-scoring.slopes[heads[i / 4]]", "-scoring.slopes[heads[0]]"),
    ("decode: slopes from one token further", "item.cuh", "(int)(position - 1 - (key", "(int)(position - (key"),
    ("decode: units of queries of the first row", "item.cuh", "(a.scale_log2 * q.unit[i / 4])", "(a.scale_log2 * q.unit[0])"),
    ("decode: units of queries from half of a row", "item.cuh", "      top = rk_max(top, rk_shuffle_xor(top, 2));\n      const u32 biased", "      const u32 biased"),
    ("decode: large queries are infinite", "item.cuh", "const float down = as_float((268 - exponent) << 23);", "const float down = 1.f; unit[r] = 1.f; if (false)"),
    ("decode: the unit of values stays the first one", "item.cuh", "if (rk_ballot(top > 32768.f * of || 256.f * past < of) != 0)", "if (of == 0.f)"),
    ("decode: the unit of values never falls", "item.cuh", " || 256.f * past < of", ""),
    ("decode: the unit of values falls in one step only", "item.cuh", "    past *= factor;\n", "    past = of * factor;\n"),
    ("decode: the unit of values from half of a row", "item.cuh", "      top = rk_max(top, rk_shuffle_xor(top, 2));\n      top = rk_max(top, 256.f", "      top = rk_max(top, 256.f"),
    ("decode: a unit of values falls below what it holds", "item.cuh", "      top = rk_max(top, 256.f * past);\n", ""),
    ("decode: sums are not brought to a new unit", "item.cuh", "factor = factor * of * as_float((262 - exponent) << 23);\n", ""),
    ("decode: scores of minus infinity are NaN", "item.cuh", "const float base = top == -RK_INF ? 0.f : top; ", "const float base = top; "),
    ("decode: sums stay in their unit", "item.cuh", "o[i / 4][i % 4] *= unit[i / 2 % 2].of;", "o[i / 4][i % 4] *= 1.f;"),
    ("decode: an 8-bit column of two rows for two of one", "item.cuh", "rk_bytes(r[j], 0, 0x3120)", "r[j]"),
    ("f16: integers are never negative", "element.cuh", "const u32 above = w ^ 0x80808080u;", "const u32 above = w | 0x80808080u;"),
    ("f16: a NaN is 480", "element.cuh", "  if ((((w & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0) {\n    first = with_f16", "  if (false) {\n    first = with_f16"),
    ("f16: an exponent off by one", "element.cuh", "0x5c005c00u", "0x58005800u"),
    ("widen: integers are never negative", "element.cuh", "0xc300c300u | (w & 0x00800080u)", "0xc300c300u"),
    ("widen: a NaN is 480", "element.cuh", "  if (K == Kind::E4M3 && ((", "  if (K == Kind::F16 && (("),
    ("widen: an exponent off by one", "element.cuh", "0x7b807b80u", "0x7b007b00u"),
    ("narrow: integers are cut off", "element.cuh", "as_bits(bounded + 12582912.f) & 0xff", "(u32)(int)bounded & 0xff"),
    ("narrow: halves are rounded up", "element.cuh", "bits + 0x7ffffu + (bits >> 20 & 1)", "bits + 0x80000u"),
    ("narrow: what is too large is NaN", "element.cuh", "return sign | 0x7e;", "return sign | 0x7f;"),
    ("narrow: small numbers are zero", "element.cuh", "return sign | (as_bits(as_float(bits) + 16384.f) & 0xff);", "return sign;"),
    ("append: a scale of half of the row", "append.cu", "for (u32 by = 16; by > 0; by /= 2)", "for (u32 by = 8; by > 0; by /= 2)", "a row of 128 elements or fewer lies in the lanes of one half"),
    ("append: a scale of the even elements", "append.cu", "      largest = largest > high ? largest : high;\n", ""),
    ("append: scales of NaN are those of the rest", "append.cu", "largest = largest > low ? largest : low;", "largest = largest > low || low > 0x7f800000u ? largest : low;"),
    ("append: a given scale is computed", "append.cu", "  if (a.static_scales) {", "  if (false) {"),
    ("append: a row of zeros is NaN", "append.cu", "    if (K == Kind::E4M3 && scale == 0.f) scale = 1.f;\n", ""),
    ("append: scales of the first head", "append.cu", "(u64)head * a.kv.scale_head_stride", "0"),
    ("tile: soft-cap without its factor", "tile.cuh", "s.cap - 2.f * s.cap *", "s.cap - s.cap *"),
    ("sink: counts without its value's share", "tile.cuh", "sum = rk_fma(sum, factor, rk_exp2(sink - larger));", "sum = sum * factor;"),
    ("sink: values are not rescaled", "tile.cuh", "  top = larger;\n  return factor;", "  top = larger;\n  return 1.f;"),
    ("merge: sinks of the first head", "merge.cu", "(u32)(row % a.q_heads)", "0u"),
    ("rows: the window of the row before", "rows.cuh", "position - 1 - key < window", "position - key < window"),
    ("rows: keys before the tile count", "rows.cuh", "(key < limit && key >= first &&", "(key < limit &&"),
    ("rows: the window is looked at where the last row's begins", "rows.cuh", "> (int)key0\n", "> (int)key0 + 32\n"),
    ("rows: windows of sharers are those of a chunk", "rows.cuh", "KIND == Rows::CHUNK && !a.trees ? (int)(last", "!a.trees ? (int)(last"),
    ("rows: a tree sees all new tokens", "rows.cuh", "(tree >> (key - limit) & 1) != 0", "tree != 0"),
    ("rows: a tree beyond its part", "rows.cuh", "tree & of_tile}", "tree}"),
    ("rows: scales of keys forgotten", "rows.cuh", "    if (S::E::SCALED) scale_scores((const float*)(in + S::KEYS_IN + S::VALUES_IN), rk_anew(lane), s);\n", ""),
    ("rows: scales of keys on the values", "rows.cuh", "K, true>(v, scales + S::KEYS,", "K, true>(v, scales,"),
    ("rows: no barrier after elements are made wide", "rows.cuh", "      rk_block_barrier();                                   // what the other", "      // what the other"),
    ("rows: slopes of another head", "rows.cuh", "(tile.row_first + at) % group", "at % group"),
    ("rows: the block of the step's first keys", "rows.cuh", "      in_block += 16;\n", ""),
    ("rows: scores without their scale before the soft-cap", "rows.cuh", "          x *= a.scale_log2;\n", ""),
    # latent vectors
    ("latent: scores of minus infinity are NaN", "latent.cuh", "const float base = top == -RK_INF ? 0.f : top; ", "const float base = top; "),
    ("latent: slots behind the end are not zeroed", "latent.cuh", "const bool valid = key + row < end;", "const bool valid = true;"),
    ("latent: waits one group short", "latent.cuh", "rk_copy_wait<0>();", "rk_copy_wait<1>();"),
    ("latent: no barrier before a stage is refilled", "latent.cuh", "    rk_block_barrier();                                     // this step's", "    // this step's"),
    ("latent: no barrier before products are added", "latent.cuh", "    rk_block_barrier();                                     // all products", "    // all products"),
    ("latent: no barrier before weights are used", "latent.cuh", "    rk_block_barrier();                                     // all weights", "    // all weights"),
    ("latent: no barrier before states are read", "latent.cuh", "  rk_block_barrier();                                       // every row's", "  // every row's"),
    ("latent: next keys into the stage in use", "latent.cuh", "stages + (step + 1) % 2 * S::STAGE", "stages + step % 2 * S::STAGE"),
    ("latent: entries of the first step", "latent.cuh", "    block = entry(step + 1);\n", ""),
    ("latent: one entry past the table", "latent.cuh", "return key < end ? table", "return key <= end ? table"),
    ("latent: place in the block of the step's first key", "latent.cuh", "(key + lane) % kv.block_tokens", "key % kv.block_tokens"),
    ("latent: half of the rotary part", "latent.cuh", "64 + lane % 8, 0, key", "64 + lane % 4, 0, key"),
    ("latent: the second half of a row is the first one", "latent.cuh", "from + more * 16, valid", "from, valid"),
    ("latent: keys in 32 bits", "latent.cuh", "(u64)rk_shuffle(mine, row) * 16 + chunk", "rk_shuffle(mine, row) * 16 + chunk"),
    ("latent: keys read without the swizzle", "latent.cuh", "L::further(L::at(lane / 16 * 8 + lane % 8, lane / 8 % 2), quarter * 2)", "(lane / 16 * 8 + lane % 8) * L::ROW_BYTES + lane / 8 % 2 * 16 + quarter * 32"),
    ("latent: a quarter is left out", "latent.cuh", "quarter = 0; quarter < S::QUARTERS;", "quarter = 1; quarter < S::QUARTERS;"),
    ("latent: queries of another quarter", "latent.cuh", "(b * S::QUARTERS + quarter) * 16", "(b * S::QUARTERS + (quarter ^ 1)) * 16"),
    ("latent: queries of the first heads", "latent.cuh", "(u64)item.kv_head * heads * S::D", "(u64)0"),
    ("latent: queries in 32 bits", "latent.cuh", "(u64)item.seq * a.q_stride", "item.seq * a.q_stride"),
    ("latent: keys of the other half of a step", "latent.cuh", "first = warp / S::QUARTERS * N * 8;", "first = 0;"),
    ("latent: mask off by one", "latent.cuh", ">= item.end) x[i]", "> item.end) x[i]"),
    ("latent: scale forgotten", "latent.cuh", "    x[i] *= a.scale_log2;\n", ""),
    ("latent: slopes of the first head", "latent.cuh", "a.scoring.slopes[head]", "a.scoring.slopes[0]"),
    ("latent: maximum over half of a row", "latent.cuh", "  top = rk_max(top, rk_shuffle_xor(top, 4));\n", ""),
    ("latent: the maximum of the step alone", "latent.cuh", "  top = rk_max(state.max, top);", "  // "),
    ("latent: sum is not rescaled", "latent.cuh", "state.sum * factor +", "state.sum +"),
    ("latent: sum over half of a row", "latent.cuh", "  sum += rk_shuffle_xor(sum, 4);\n", ""),
    ("latent: values are not rescaled", "latent.cuh", "*= factor[m][i / 2 % 2];", "*= factor[m][0];"),
    ("latent: weights of the first keys for all", "latent.cuh", "k * 2 + lane / 16));", "lane / 16));"),
    ("latent: values read without the swizzle", "latent.cuh", "const u32 at = L::at(lane / 8 % 2 * 8 + lane % 8, lane / 16);", "const u32 at = (lane / 8 % 2 * 8 + lane % 8) * L::ROW_BYTES + lane / 16 * 16;"),
    ("latent: values of the first warp's columns", "latent.cuh", "keys + warp * S::COLUMNS * 2;", "keys;"),
    ("latent: writes rows the item does not have", "latent.cuh", "      if (in_item >= heads) continue;\n", ""),
    ("latent: outputs in 32 bits", "latent.cuh", "const u64 row = (u64)item.seq * a.q_heads + head;", "const u32 row = item.seq * a.q_heads + head;"),
    ("latent: partial rows in 32 bits", "latent.cuh", "const u64 row = (u64)item.part + in_item;", "const u32 row = item.part + in_item;"),
    ("latent: an idle item is worked on", "latent.cuh", "  if (item.kv_head == RK_IDLE) return;\n", ""),
    ("latent: log-sum without its unit", "latent.cuh", "log_sum(top, sum) * a.lse_scale", "log_sum(top, sum)"),
    # merge
    ("merge: what was summed is not rescaled", "merge.cu", "    sum *= factor;\n", ""),
    ("merge: an item of no rows is merged", "merge.cu", "if (r >= item.rows) return;", ""),
    ("merge: no barrier", "merge.cu", "  rk_block_barrier();\n", ""),
    ("merge: one part too many", "merge.cu", "if (i + j * GROUPS < item.count)", "if (i + j * GROUPS <= item.count)"),
    ("merge: begins at the list's beginning", "merge.cu", "a.list[item.first + i", "a.list[i"),
    ("merge: rows of the item ignored", "merge.cu", "+ j * GROUPS] + r;", "+ j * GROUPS];"),
    ("merge: a maximum that never rises", "merge.cu", "    const float factor = part_factor(top, next);", "    if (top != -RK_INF) next = top;\n    const float factor = part_factor(top, next);"),
    ("merge: the maximum of the last parts alone", "merge.cu", "float next = top;", "float next = -RK_INF;"),
    ("merge: a maximum of zero and more", "merge.cu", "float next = top;", "float next = rk_max(top, 0.f);"),
    ("merge: the maximum of the first group", "merge.cu", "top = rk_max(top, states[g].x);", "top = g == 0 ? states[0].x : top;"),
    ("merge: outputs in 32 bits", "merge.cu", "const u64 row = (u64)item.row + r;", "const u32 row = item.row + r;"),
    ("merge: partial rows in 32 bits", "merge.cu", "const u64 row = (u64)a.list", "const u32 row = a.list"),
    # append
    ("append: skipped slots are written", "append.cu", "    if (slot == RK_SKIP) continue;\n    const SlotPlace place = slot_place(a.kv, slot);\n    const rk_u4*", "    const SlotPlace place = slot_place(a.kv, slot);\n    const rk_u4*"),
    ("append: reads past the last token", "append.cu", "token < a.tokens;", "token <= a.tokens;"),
    ("append: reads past the row", "append.cu", "if (unit < keys) k[j] =", "k[j] ="),
    ("append: writes past the row", "append.cu", "if (unit < keys) *unit_place", "*unit_place"),
    ("append: only what is in flight at first", "append.cu", "first += 32 * AHEAD", "first += keys + values"),
    ("append: value stride ignored", "append.cu", "(a.v + token * a.v_stride);", "(a.v + token * a.k_stride);"),
    ("append: heads at the wrong stride", "append.cu", "(u64)(unit / head_units) * plane.head_stride", "(u64)(unit / head_units) * head_units * 8"),
    ("append: keys into the values", "append.cu", "*unit_place(a.kv.v, place, unit, value_units) = v[j];", "*unit_place(a.kv.v, place, unit, value_units) = k[j];"),
    ("append: slots of 32 bits", "append.cu", "const u64 slot = a.slot[token];", "const u64 slot = a.slot[token] == RK_SKIP ? RK_SKIP : (u32)a.slot[token];"),
    ("append: blocks in 32 bits", "append.cu", "(rk_u4*)((u16*)plane.at + place.block * plane.block_stride", "(rk_u4*)((u16*)plane.at + (u32)(place.block * plane.block_stride)"),
    ("append: tokens of a block in 16 bits", "append.cu", "place.block * plane.block_stride + (u64)place.in_block * plane.token_stride +\n                  (u64)(unit", "place.block * plane.block_stride + (u16)(place.in_block * plane.token_stride) +\n                  (u64)(unit"),
    ("append: heads in 16 bits", "append.cu", "(u64)(unit / head_units) * plane.head_stride", "(u16)((unit / head_units) * plane.head_stride)"),
    ("append: keys in 32 bits", "append.cu", "(a.k + token * a.k_stride);", "(a.k + (u32)token * a.k_stride);"),
    ("append: values in 32 bits", "append.cu", "(a.v + token * a.v_stride);", "(a.v + (u32)token * a.v_stride);"),
    # copy_blocks
    ("copy: part of a block ignored", "copy_blocks.cu", "const u32 last = rk_min(pair.units, first + SEGMENT);", "const u32 last = rk_min(a.row_units, first + SEGMENT);"),
    ("copy: unrolled past the end", "copy_blocks.cu", "for (; i + 7 * 256 < last;", "for (; i < last;"),
    ("copy: row offset forgotten", "copy_blocks.cu", "const u64 from = (u64)row * a.row_units;", "const u64 from = 0;"),
    ("copy: offset in 32 bits", "copy_blocks.cu", "pair.dst * a.dst_stride", "(u32)(pair.dst * a.dst_stride)"),
    ("copy: source offset in 32 bits", "copy_blocks.cu", "pair.src * a.src_stride", "(u32)(pair.src * a.src_stride)"),
    ("copy: planes mixed up", "copy_blocks.cu", "a.dst_planes[plane]", "a.dst_planes[0]"),
    # bandwidth
    ("bandwidth: what was read is written", "bandwidth.cu", "&& a.dst) *(u32*)a.dst = sum", ") *(u32*)a.src = sum"),
    # compare_keys
    ("compare: ballot in a branch", "compare_keys.cu", "const u32 lanes = rk_ballot(at + lane < n && a[at + lane] != b[at + lane]);", "u32 lanes = 0;\n    if (at + lane < n) lanes = rk_ballot(a[at + lane] != b[at + lane]);"),
    ("compare: reads past the runs", "compare_keys.cu", "rk_ballot(at + lane < n && a", "rk_ballot(a"),
    ("compare: first of four only", "compare_keys.cu", "4 * who + rk_shuffle(d, who);", "4 * who;"),
    ("compare: unaligned runs by sixteen bytes", "compare_keys.cu", "(((u64)a | (u64)b) & 15) == 0;", "true;"),
    ("compare: steps are rounded up", "compare_keys.cu", "*at + 128 * U <= n;", "*at < n;"),
    ("compare: first runs in 32 bits", "compare_keys.cu", "common_prefix(a.a + x.first,", "common_prefix((const u32*)((u64)a.a + (u32)(x.first * 4)),"),
    ("compare: second runs in 32 bits", "compare_keys.cu", "a.b + y.first,", "(const u32*)((u64)a.b + (u32)(y.first * 4)),"),
    # these only cost time
    ("compare: never by sixteen bytes", "compare_keys.cu", "if (aligned && (", "if (false && (", "slower, and the same lengths"),
    ("rows: rescales in every step", "rows.cuh", "  if (rk_ballot(moved) == 0) return;\n", "", "slower, by factors of 1"),
]


# (what, file, text that occurs there once, text in its place, the tests that run)
CRATE_MUTANTS = [
    # several streams
    ("crate: a use of one stream ends those of the others", "uses.rs", "self.last.retain(|(by, event)| *by != stream.identity() && !over(event));", "let _ = over;\n        self.last.clear();", "uses"),
    ("crate: a host block is written before its transfers", "host.rs", "        uses.wait().map_err(GpuError::of)?;\n        // SAFETY: as in `read`.", "        let _ = &uses;\n        // SAFETY: as in `read`.", "uses"),
    ("crate: a host block is read before its transfers", "host.rs", "        uses.wait().map_err(GpuError::of)?;\n        // SAFETY: `check`", "        let _ = &uses;\n        // SAFETY: `check`", "uses"),
    ("crate: a storage is written before its transfers", "kv.rs", "        self.uses.get_mut().wait_on(&self.device).map_err(GpuError::of)?;\n", "", "uses"),
    ("crate: a storage is read before its transfers", "kv.rs", "        self.uses.lock().wait_on(&self.device).map_err(GpuError::of)?;\n", "", "uses"),
    ("crate: a storage is freed before its transfers", "kv.rs", "        self.uses.end_before(&self.stream);\n", "        let _ = (&mut self.uses, &self.stream);\n", "uses"),
    ("crate: a host pool is freed before its transfers", "host.rs", "        self.uses.end();\n", "        let _ = &mut self.uses;\n", "uses"),
    ("crate: a use of a storage is not noted", "swap.rs", "        kv_uses.note(&self.copy_stream, &done);\n", "        drop(kv_uses);\n", "uses"),
    ("crate: a use of a host pool is not noted", "swap.rs", "        host_uses.note(&self.copy_stream, &done);\n", "        drop(host_uses);\n", "uses"),
    ("crate: a transfer waits for nothing", "swap.rs", "        self.copy_stream.stream().join(self.device.stream()).map_err(GpuError::of)?;\n", "", "swapping"),
    ("crate: planes of several allocations are copied as one", "kv.rs", "end <= base + bytes as u64)", "end <= base + bytes as u64 || true)", "engine_brings"),
    # plans on their way
    ("crate: slots of 32 bits", "upload.rs", "words.extend([*self as u32, (*self >> 32) as u32]);", "words.extend([*self as u32, 0]);", "multiples_of_16_bytes"),
    ("crate: a chunk is written while it is read", "staging.rs", ">= bytes && is_free(chunk)", ">= bytes && (is_free(chunk) || true)", "staged attention"),
    ("crate: the chunk that was used first is written while it is read", "staging.rs", "            retry_once(|| wait_for(&oldest.read));\n", "", "written_again"),
    ("crate: a chunk is freed while it is read", "staging.rs", "self.chunks.get_mut().drain(..).for_each(|chunk| retry_once(|| wait_for(&chunk.read)));", "self.chunks.get_mut().clear();", "outlives_its_device"),
    ("crate: the pool gives its memory back", "device.rs", "        let _ = driver::keep_pooled(context.cu_device());\n", "", "preparing_again"),
    ("crate: more and more memory on its way", "staging.rs", "if chunks.len() < MOST_CHUNKS =>", "if chunks.len() < MOST_CHUNKS << 9 =>", "bounded"),
    ("crate: memory on its way is allocated again and again", "staging.rs", "if oldest.memory.bytes() >= bytes {", "if oldest.memory.bytes() >= bytes && false {", "bounded"),
    ("crate: a copy that no event ends is overtaken", "staging.rs", ".inspect_err(|_| retry_once(|| stream.synchronize()))", "", "room"),
    # finding the driver
    ("crate: folders beside the loader's path are not tried", "driver.rs", "load(FOLDERS)", "load(&FOLDERS[..0])", "beside_the_loaders"),
    ("crate: a driver that the binding does not find", "driver.rs", "NAMES.iter().copied().any(|name| named(name).is_some()).then_some(library)", "Some(library)", "a_driver_in_a_folder"),
    ("crate: names in another order than the binding's", "driver.rs", '["libcuda.so", "libcuda.so.1"]', '["libcuda.so.1", "libcuda.so"]', "what_is_missing"),
    # batches that are replaced in place
    ("crate: room for items is not idle", "reserved.rs", "DecodeItem { kv_head: IDLE, part: DIRECT", "DecodeItem { kv_head: 0, part: DIRECT", "replay"),
    ("crate: rows without a sequence are appended", "reserved.rs", "slots.resize(capacity.sequences, SKIP);", "slots.resize(capacity.sequences, 0);", "replay"),
    ("crate: more parts than there is room for", "plan/split.rs", "count(*part) <= most", "count(*part) <= most.max(1 << 20)", "parts_fit replay"),
    ("crate: no room for the last blocks", "capacity.rs", "Upload::room::<BlockId>(blocks)", "Upload::room::<BlockId>(blocks.saturating_sub(4))", "room"),
    ("crate: no room for the last partial rows", "work.rs", "let rows = items * group;", "let rows = items.saturating_sub(1) * group;", "room"),
    ("crate: the first row of a head is merged", "work.rs", "most_rows: group,", "most_rows: 1,", "replay"),
    ("crate: merges of another step", "reserved.rs", "    plan.merges.items.resize(capacity.sequences * head_groups, MergeItem::default());\n", "    let _ = (MergeItem::default(), head_groups);\n", "replay"),
    ("crate: a list of another length", "reserved.rs", "    plan.merges.list.resize(capacity.items, 0);\n", "", "replay"),
    ("crate: more rows than there are numbers", "work.rs", "if u32::try_from(rows * query_heads).is_err() {", "if false {", "failures"),
    ("crate: an update is not checked", "reserved.rs", "        batch.check(&sizes.layout)?;\n", "", "room"),
    ("crate: an update of another scoring", "reserved.rs", "if !self.scoring.is(&batch.scoring) {", "if false {", "replay"),
    ("crate: a full batch is refused", "capacity.rs", "if given <= room {", "if given < room {", "room replay"),
    ("crate: one more than there is room for", "capacity.rs", "if given <= room {", "if given <= room + 1 {", "room replay"),
    # latent vectors
    ("crate: heads beyond an item's", "work.rs", "self.query_heads / groups <= WIDE_HEADS", "self.query_heads / groups <= 2 * WIDE_HEADS", "latent"),
    ("crate: few heads are decoded as many", "kernel.rs", "query_heads > NARROW_HEADS", "query_heads > WIDE_HEADS", "latent"),
    ("crate: values are appended to latent vectors", "prepared.rs", "value_dim: if layout.has_values() { layout.value_dim as u32 } else { 0 },", "value_dim: layout.value_dim as u32,", "latent"),
    ("crate: a layer's latent vectors are those of half of it", "kv.rs", "false => [self.planes[layer]; 2],", "false => [self.planes[layer / 2]; 2],", "latent"),
    ("crate: rows of a chunk see all of it", "prepared.rs", "(1..=rows.len() as u32).map(|row| before + row)", "(1..=rows.len() as u32).map(|_| before + rows.len() as u32)", "latent"),
    ("crate: a tree over latent vectors is taken for a path", "prepared.rs", "mask.count_ones() != index", "false && mask.count_ones() != index", "latent"),
    ("crate: too few parts for latent vectors", "reserved.rs", "let needed = capacity.sequences * sizes.head_groups();", "let needed = capacity.sequences;", "latent room"),
    # pairs of heads
    ("crate: pairs of heads with too many query heads", "kernel.rs", "query_heads / kv_heads <= PAIR_GROUP", "query_heads / kv_heads <= 2 * PAIR_GROUP", "pairs"),
    ("crate: pairs of an odd number of heads", "kernel.rs", "kv_heads.is_multiple_of(2) && ", "", "pairs"),
    ("crate: tiles of pairs of heads", "work.rs", "kv_heads: self.layout.kv_heads,\n            decode_slots", "kv_heads: self.head_groups(),\n            decode_slots", "pairs"),
    ("crate: a batch of pairs is replaced by single heads", "reserved.rs", "..sizes.decode_params(&self.device) };", "..sizes.params(&self.device) };", "pairs"),
    # devices
    ("crate: a batch of another device", "attention.rs", "        self.check_device(device)?;\n", "        let _ = device;\n", "handles"),
    ("crate: a storage of another device", "attention.rs", "        self.check_device(kv.device())?;\n        self.check_device(device)", "        self.check_device(device)", "handles"),
    ("crate: a cascade beside the batch of another device", "attention.rs", "        self.layer_kv(kv, layer, &batch.device, &batch.sizes)?;\n", "", "handles"),
    ("crate: a cascade of another batch", "attention.rs", "if cascade.fingerprint != batch.fingerprint {", "if false {", "of_another_batch"),
    ("crate: a replaced batch keeps its cascade", "reserved.rs", "        self.fingerprint = fingerprint(batch);\n", "        let _ = fingerprint(batch);\n", "of_another_batch"),
    ("crate: a refused update keeps no cascade", "reserved.rs", "        upload.replace(&mut self.arrays)?;\n        self.fingerprint = fingerprint(batch);\n", "        self.fingerprint = fingerprint(batch);\n        upload.replace(&mut self.arrays)?;\n", "of_another_batch"),
    ("crate: a host pool of another context", "host.rs", "self.device.stream().context() == device.stream().context()", "{ let _ = device; true }", "handles"),
    ("crate: rows that are not kept are appended", "attention.rs", "if !batch.save_kv {", "if false {", "failures"),
    ("crate: the launches of two threads are mixed", "device.rs", "        self.inner.queueing.lock()", "        std::boxed::Box::leak(Box::new(Mutex::new(()))).lock()", "may_share"),
    ("crate: chunks are decoded", "attention.rs", "        batch.decodes?;\n", "", "failures"),
    ("crate: an engine's pool is set", "device.rs", "        let properties = Properties::of(&context)", "        let _ = driver::keep_pooled(context.cu_device());\n        let properties = Properties::of(&context)", "memory_pool"),
    # captures
    ("crate: what a capture drops makes a graph that uses it", "capturing.rs", "            capture.broken = true;\n            capture.dropped", "            capture.dropped", "graphs"),
    ("crate: a swap of large blocks is captured", "swap.rs", "        self.device.refuse_capture()?;\n\n", "\n", "graphs"),
    ("crate: a wait for a transfer ends an engine's capture", "swap.rs", "        device.refuse_capture()?;\n        device.stream()", "        device.stream()", "engine_captures"),
    ("crate: what an engine's step drops is freed at once", "device.rs", "self.engine_captures() != Ok(false)", "self.engine_captures() != Ok(false) && false", "engine_captures"),
    ("crate: what an engine's step dropped is never freed", "capturing.rs", "        drop(kept);\n", "        std::mem::forget(kept);\n", "engine_captures"),
    ("crate: a storage that an engine's step drops waits at once", "kv.rs", "self.device.drop_after_capture(LateUses", "drop(LateUses", "engine_captures"),
    ("crate: an engine's capture goes unseen", "device.rs", "|| by_engine == Ok(true)", "|| (by_engine == Ok(true) && false)", "engine_captures"),
    ("crate: page-locked memory of another device is freed during a capture", "capturing.rs", "last.push(Box::new(memory.take()));", "let _ = (last, &mut memory);", "page_locked"),
    ("crate: what a capture within another dropped is lost", "capturing.rs", ".extend(last);", ".extend(Dropped::new()); std::mem::forget(last);", "page_locked"),
    ("crate: a question about an event ends an engine's capture", "driver.rs", "    beside_captures(event, CudaEvent::try_is_complete)", "    event.try_is_complete()", "transfers_and"),
    ("crate: a wait for an event ends an engine's capture", "driver.rs", "    beside_captures(event, CudaEvent::synchronize)", "    event.synchronize()", "transfers_and"),
    ("crate: the time between events ends an engine's capture", "driver.rs", "    beside_captures(start, |start| {", "    fn plain<T>(event: &CudaEvent, call: impl FnOnce(&CudaEvent) -> T) -> T { call(event) }\n    plain(start, |start| {", "transfers_and"),
    ("crate: a thread without a context cannot leave captures whole", "driver.rs", "    let _ = unsafe { result::ctx::set_current(event.context().cu_ctx()) };\n", "", "transfers_and"),
    ("crate: the thread's mode of capturing is not given back", "driver.rs", "    if exchanged.is_ok() {", "    if exchanged.is_ok() && false {", "transfers_and"),
    ("crate: a capture is not seen after a failed drop", "driver.rs", "    unsafe { result::ctx::set_current(stream.context().cu_ctx()) }?;", "    unsafe { result::ctx::set_current(stream.context().cu_ctx()) }?;\n    stream.context().check_err()?;", "seen_after"),
    ("crate: an allocation is captured", "buffer.rs", "        self.refuse_capture()?;\n        let slice = self.stream().alloc_zeros", "        let slice = self.stream().alloc_zeros", "graphs"),
    ("crate: bytes of a buffer overflow", "buffer.rs", "len.checked_mul(size_of::<T>())", "Some(len.wrapping_mul(size_of::<T>()))", "overflow"),
    ("crate: a copy from the host is captured", "buffer.rs", "        self.device.refuse_capture()?;\n        if size_of_val", "        if size_of_val", "graphs no_room_for"),
    ("crate: a large copy is read after the call", "buffer.rs", "        self.device.synchronize()\n", "        Ok(())\n", "taken_when"),
    ("crate: a small copy is read after the call", "buffer.rs", "if size_of_val(elements) <= MOST_BYTES {", "if false {", "pageable"),
    ("crate: a failed drop leaves the capture open", "graph.rs", "stream.context().check_err();", "Ok::<(), DriverError>(());", "graphs"),
    ("crate: what was refused makes a graph", "graph.rs", "if device.capturing().end().is_broken() {", "if device.capturing().end().is_broken() && false {", "graphs"),
]


# Barriers and waits in PTX, and the text in their place. The kernels of the other element type have
# the same ones.
PTX = [(r"bar\.sync\s+0;", lambda found: ""), (r"bar\.warp\.sync\s+-1;", lambda found: ""),
       (r"cp\.async\.wait_group (\d+);", lambda found: f"cp.async.wait_group {int(found[1]) + 1};")]
ENTRY = re.compile(r"\.visible \.entry (\w+)\([\s\S]*?\n\}\n")
PTX_LIVES = {("rk_selftest", "bar.sync"): "nothing depends on it: it is there to be executed"}


def run(command, **more):
    return subprocess.run(command, cwd=HERE / "sim", capture_output=True, text=True, **more)


def build(source, target, include, *more):
    done = run([CXX, *FLAGS, *more, *include, "-c", str(source), "-o", str(target)])
    if done.returncode:
        sys.exit(f"{source} does not compile:\n{done.stderr}")


def verdict(program, *arguments):
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT, TIMEOUT + 1))
    try:
        # Longer in all, where other programs have the processors.
        done = run([str(program), "quick", *arguments], preexec_fn=limit, timeout=10 * TIMEOUT)
    except subprocess.TimeoutExpired:
        return "caught", "never ends"
    if done.returncode == -signal.SIGXCPU:
        return "caught", "never ends"
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return ("lives", "") if done.returncode == 0 else ("caught", said[0][:110] if said else f"signal {-done.returncode}")


def kernels_with(file):
    """What limits the tests to those that launch a kernel whose source has this file in it: no other test runs the planted bug."""
    sources = [*HERE.glob("*.cu"), *HERE.glob("*.cuh")]
    included = {source.name: re.findall(r'#include "(\w+\.cuh)"', source.read_text()) for source in sources}
    has = lambda name: name == file or any(has(other) for other in included[name])
    stems = [name[:-3] for name in included if name.endswith(".cu") and has(name)]
    return [f"of={name}" for stem in stems for name in (["rk_read", "rk_copy"] if stem == "bandwidth" else [f"rk_{stem}"])]


def plant(objects, file, before, after):
    planted = OUT / "planted"
    shutil.rmtree(planted, ignore_errors=True)
    planted.mkdir()
    for source in [*HERE.glob("*.cu"), *HERE.glob("*.cuh"), *HERE.glob("sim/kernels.*"), HERE / "sim/simt.hpp"]:
        shutil.copy(source, planted)
    if before:
        (planted / file).write_text((HERE / file).read_text().replace(before, after))
    # Most of a run is the reference and the simulator: kernels that are not optimised take a third of the time to build, and cost none.
    build(planted / "kernels.cpp", OUT / "kernels.o", ["-I", str(planted)], "-O0")
    # The tests have some of the same functions, without the bug: the linker must not take those for the kernels', nor the other way round.
    alone = OUT / "alone.o"
    subprocess.run(["ld", "-r", "--force-group-allocation", str(OUT / "kernels.o"), "-o", str(alone)], check=True)
    names = subprocess.run(["nm", str(alone)], capture_output=True, text=True, check=True).stdout
    found = re.search(r" T (\S*find_kernel\S*)", names)[1]
    subprocess.run(["objcopy", f"--keep-global-symbol={found}", str(alone)], check=True)
    subprocess.run([CXX, *objects, str(alone), "-o", str(OUT / "test")], check=True)
    return verdict(OUT / "test", "4", "first", *(kernels_with(file) if before else []))


def ptx_mutants(wanted):
    """(what, the file with the bug, the kernel, why it may live). A file has one kernel; all others run from their sources."""
    planted = OUT / "planted.ptx"
    for file in sorted((HERE / "prebuilt").glob("*.ptx")):
        text = file.read_text()
        around = ENTRY.sub("", text)
        for entry in ENTRY.finditer(text):
            name, bugs = entry[1], []
            if "bf16" in name:
                continue
            for pattern, replacement in PTX:
                for found in re.finditer(pattern, entry[0]):
                    what, line = found[0].split()[0], text[:entry.start() + found.start()].count("\n") + 1
                    bug = around + entry[0][:found.start()] + replacement(found) + entry[0][found.end():]
                    bugs.append((f"ptx: {name}, line {line}: {what}", bug, PTX_LIVES.get((name, what))))
            bugs = [bug for bug in bugs if wanted(bug[0])]
            if bugs:
                planted.write_text(around + entry[0])
                yield None, planted, name, "nothing is planted"
            for what, bug, reason in bugs:
                planted.write_text(bug)
                yield what, planted, name, reason


class Crate:
    """A copy of the sources, in which the crate's tests run on the stand-in driver."""

    BINARIES = {"radixkv_cuda": ["--lib"], "gpu": ["--test", "gpu"], "gpu_absent": ["--test", "gpu_absent"]}

    def __init__(self):
        self.tree = Tree("kernel-mutants/crate")
        shutil.copytree(HERE, pathlib.Path(self.tree.tree) / "kernels")
        self.env = dict(self.tree.env, CARGO_TARGET_DIR=os.environ.get("CARGO_TARGET_DIR") or str(HERE.parent / "target"), RADIXKV_GPU="simulator")
        self.home = pathlib.Path(self.tree.tree) / CRATE / ".."
        built = self.build(self.BINARIES)
        listed = {name: subprocess.run([path, "--list"], cwd=self.home, env=self.env, capture_output=True, text=True, check=True) for name, path in built.items()}
        self.tests = {name: re.findall(r"^(.*): test$", list.stdout, re.M) for name, list in listed.items()}

    def build(self, binaries):
        """Builds these of the crate's tests: their files by name."""
        command = ["cargo", "test", "--locked", "-q", "-p", "radixkv-cuda", "--no-run", "--message-format=json"]
        built = subprocess.run(command + [word for name in binaries for word in self.BINARIES[name]], cwd=self.tree.tree, env=self.env, capture_output=True, text=True)
        messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
        if built.returncode:
            said = [message["message"]["rendered"] for message in messages if message["reason"] == "compiler-message"]
            sys.exit("".join(said) + built.stderr)
        return {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}

    def run(self, binary, words):
        """Runs tests until the first one fails: what it was."""
        # A bug may make tests wait for ever. The limit is far above what they take beside other work.
        command = ["timeout", "--signal=KILL", "1800", binary, *words]
        with subprocess.Popen(command, cwd=self.home, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as tests:
            last = ""
            for line in tests.stdout:
                last = line.strip() or last  # where the simulator ends the program, what it said
                if line.endswith("FAILED\n"):
                    # The tests' own processes end too.
                    os.killpg(tests.pid, signal.SIGKILL)
                    return line.strip()
        return None if tests.returncode == 0 else f"status {tests.returncode}: {last}"

    def verdict(self, file, before, after, tests):
        path, words = f"{CRATE}/{file}", tests.split()
        if before:
            self.tree.write(path, self.tree.read(path).replace(before, after))
        # Only the binaries that have these tests are built.
        binaries = [name for name, has in self.tests.items() if any(word in test for word in words for test in has)]
        built = self.build(binaries)
        failed = next(filter(None, (self.run(built[name], words) for name in binaries)), None)
        self.tree.restore(path)
        return ("caught", failed[:110]) if failed else ("lives", "")


def strays():
    """The bugs whose text is not in its file exactly once."""
    for what, file, before, *_ in [*((m[0], HERE / m[1], m[2]) for m in MUTANTS), *((m[0], HERE.parent / CRATE / m[1], m[2]) for m in CRATE_MUTANTS)]:
        if (count := file.read_text().count(before)) != 1:
            yield f"{what}: its text occurs {count} times in {file.name}"


def main(words):
    if found := list(strays()):
        sys.exit("\n".join(found))
    if words == ["--texts"]:
        return
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    count = {"caught": 0, "unexpected": 0}

    def report(what, result, how, reason):
        count["caught"] += result == "caught"
        if result == "lives":
            how = f"expected: {reason}" if reason else "NO TEST CAUGHT IT"
        elif reason:
            how = f"CAUGHT, BUT EXPECTED TO LIVE: {how}"
        count["unexpected"] += (result == "lives") != bool(reason)
        print(f"{result:6}  {what:60}  {how}", flush=True)

    wanted = lambda what: not words or any(w in what for w in words)
    of_sources, of_crate = [[mutant for mutant in mutants if wanted(mutant[0])] for mutants in (MUTANTS, CRATE_MUTANTS)]
    objects = []

    def build_tests():
        if objects:
            return
        for name in TESTS:
            objects.append(str(OUT / (pathlib.Path(name).name + ".o")))
            build(HERE / f"{name}.cpp", objects[-1], ["-I", str(HERE), "-I", str(HERE / "sim"), "-I", str(HERE / "sim/test")])
        result, how = plant(objects, "plat.cuh", "", "")
        if result != "lives":
            sys.exit(f"the tests fail without a planted bug: {how}")

    for what, planted, kernel, reason in ptx_mutants(wanted):
        build_tests()
        tried = lambda schedules: verdict(OUT / "test", schedules, "first", f"of={kernel}", str(planted))
        # One schedule has latent vectors of some types and heads only; four have all of them.
        if not what:
            if (whole := tried("4"))[0] != "lives":
                sys.exit(f"the tests of {kernel} fail without a planted bug: {whole[1]}")
            continue
        first = tried("1")
        report(what, *(first if first[0] == "caught" else tried("4")), reason)
    for what, file, before, after, *reason in of_sources:
        build_tests()
        report(what, *plant(objects, file, before, after), *(reason or [""]))
    if of_crate:
        crate = Crate()
        result, how = crate.verdict("lib.rs", "", "", " ".join(sorted({mutant[4] for mutant in of_crate})))
        if result != "lives":
            sys.exit(f"the crate's tests fail without a planted bug: {how}")
        for what, file, before, after, tests in of_crate:
            report(what, *crate.verdict(file, before, after, tests), "")
    print(f"{count['caught']} caught, {count['unexpected']} not as expected")
    sys.exit(min(count["unexpected"], 100))


main(sys.argv[1:])
