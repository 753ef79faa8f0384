#include "races.hpp"

#include <unordered_map>
#include <vector>

namespace races {
namespace {

// When a thread touched a word. Epochs never come again, so what an earlier block did is ordered before everything.
struct Touch {
  u32 thread = 0;
  simt::Epoch epoch = {};
};

// Touches of a word of 4 bytes: the last write, and the last read since then by each warp. `many`: by several threads of the warp, with no
// barrier between.
struct Word {
  struct Read { Touch touch; bool many; };
  Touch write;
  bool in_flight = false;
  std::vector<Read> reads;
};

struct Copies {
  struct Copy { u64 address; size_t bytes; u32 group; };
  std::vector<Copy> open;
  u32 group = 0;
};

// Blocks of the present launch that touched a word of global memory, by their beginning; 0 is none.
struct Blocks { u64 writer = 0, reader = 0; bool many_read = false; };

std::unordered_map<u64, Blocks> global;
u64 launch = 0;
std::vector<Word> words;
std::vector<Copies> copies;
u64 start = 0;

Word& word(u64 index) {
  if (index >= words.size()) words.resize(index + 1024);
  return words[index];
}

// Copies of the calling thread; those that an earlier block left open are over.
Copies& mine() {
  if (start != simt::epoch().start) {
    start = simt::epoch().start;
    copies.assign(simt::here().threads, Copies());
    for (Word& w : words) w.in_flight = false;
  }
  return copies[simt::here().thread];
}

bool ordered(const Touch& before, const Touch& after) {
  return before.thread == after.thread || before.epoch.block < after.epoch.block ||
         (before.thread / 32 == after.thread / 32 && before.epoch.warp < after.epoch.warp);
}

void behind_writes(const Word& w, const Touch& touch, const char* race) {
  if (w.in_flight) simt::die("race: shared memory is touched while a copy to it is on its way");
  if (!ordered(w.write, touch)) simt::die(race);
}

void behind_reads(const Word& w, const Touch& touch) {
  for (const Word::Read& read : w.reads) {
    Touch other = read.touch;
    if (read.many && other.thread == touch.thread) other.thread ^= 1;
    if (!ordered(other, touch)) simt::die("race: shared memory is written that another thread reads");
  }
}

void read_word(Word& w, const Touch& touch) {
  behind_writes(w, touch, "race: shared memory is read that another thread writes");
  for (Word::Read& read : w.reads) {
    Touch& last = read.touch;
    if (last.thread / 32 != touch.thread / 32) continue;
    const bool together = last.epoch.block == touch.epoch.block && last.epoch.warp == touch.epoch.warp;
    read.many = together && (read.many || last.thread != touch.thread);
    last = touch;
    return;
  }
  w.reads.push_back({touch, false});
}

void write_word(Word& w, const Touch& touch) {
  behind_writes(w, touch, "race: two threads write the same shared memory");
  behind_reads(w, touch);
  w.reads.clear();
  w.write = touch;
}

template <class Each> void each_global(u64 address, size_t bytes, Each each) {
  if (launch != simt::epoch().launch) {
    launch = simt::epoch().launch;
    global.clear();
  }
  for (u64 index = address / 4; index * 4 < address + bytes; ++index) each(global[index], simt::epoch().start);
}

void behind_writer(const Blocks& w, u64 block, const char* race) {
  if (w.writer != 0 && w.writer != block) simt::die(race);
}

template <class Each> void each_word(u64 address, size_t bytes, Each each) {
  const Touch touch = {simt::here().thread, simt::epoch()};
  mine();
  for (u64 index = address / 4; index * 4 < address + bytes; ++index) each(word(index), touch);
}

}  // namespace

void read(u64 address, size_t bytes) { each_word(address, bytes, read_word); }
void write(u64 address, size_t bytes) { each_word(address, bytes, write_word); }

void copy_started(u64 address, size_t bytes) {
  each_word(address, bytes, [](Word& w, const Touch& touch) {
    write_word(w, touch);
    w.in_flight = true;
  });
  mine().open.push_back({address, bytes, mine().group});
}

void copy_group() { ++mine().group; }

void copy_wait(u32 groups) {
  Copies& own = mine();
  size_t kept = 0;
  for (const Copies::Copy& copy : own.open) {
    if (copy.group + groups >= own.group) {
      own.open[kept++] = copy;
      continue;
    }
    each_word(copy.address, copy.bytes, [](Word& w, const Touch& touch) {
      w.in_flight = false;
      w.write = touch;
    });
  }
  own.open.resize(kept);
}

void read_global(u64 address, size_t bytes) {
  each_global(address, bytes, [](Blocks& w, u64 block) {
    behind_writer(w, block, "race: a block reads what another one writes");
    w.many_read |= w.reader != 0 && w.reader != block;
    w.reader = block;
  });
}

void write_global(u64 address, size_t bytes) {
  each_global(address, bytes, [](Blocks& w, u64 block) {
    behind_writer(w, block, "race: two blocks write the same global memory");
    if (w.many_read || (w.reader != 0 && w.reader != block)) simt::die("race: a block writes what another one reads");
    w.writer = block;
  });
}

}  // namespace races
