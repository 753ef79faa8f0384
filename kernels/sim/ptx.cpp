// Reading PTX, and running an entry: one fiber of the simulator a thread, as with a kernel compiled for the host.
#include "ptx.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace ptx {

u64 dynamic_base(const Entry& entry) { return (entry.statics + 127) / 128 * 128; }

namespace {

const char* const SPECIAL[] = {"%tid.x", "%ntid.x", "%ctaid.x", "%ctaid.y", "%nctaid.x"};

// Words of a statement: names, numbers, and marks of one character. Comments are left out.
std::vector<std::string> words_of(const std::string& text) {
  const auto part_of_word = [](char c) { return isalnum((u8)c) || strchr("_$%.:", c); };
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (isspace((u8)text[i])) {
      ++i;
      continue;
    }
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (text[i] == '"') {
      i = std::min(text.find('"', i + 1), text.size() - 1) + 1;
    } else if (part_of_word(text[i])) {
      while (i < text.size() && part_of_word(text[i])) ++i;
    } else {
      ++i;
    }
    words.push_back(text.substr(begin, i - begin));
  }
  return words;
}

bool is_number(const std::string& word) { return isdigit((u8)word[0]); }

u64 number(const std::string& word) {
  return word.compare(0, 2, "0f") == 0 ? strtoull(word.c_str() + 2, nullptr, 16) : strtoull(word.c_str(), nullptr, 0);
}

void run(const Entry& entry, const void* args) {
  Lane lane = {entry.registers, &entry, entry.code.data(), static_cast<const u8*>(args), nullptr, nullptr};
  lane.statics = static_cast<u8*>(simt::static_shared(entry.statics));
  lane.dynamics = static_cast<u8*>(simt::dynamic_shared());
  const simt::Place& here = simt::here();
  const u32 values[] = {here.thread, here.threads, here.block_x, here.block_y, here.blocks_x};
  for (u32 i = 0; i < 5; ++i) lane.set<u32>(entry.special[i], values[i]);
  while (lane.next) {
    const Instruction& i = *lane.next++;
    if (i.guard == UNGUARDED || lane.is_true(i.guard) != i.negated) i.execute(lane, i);
  }
}

}  // namespace

// Goes through the words of a module once; labels are put in where an entry ends.
class Reader {
 public:
  explicit Reader(const std::string& text) : words_(words_of(text)) {}

  std::unique_ptr<Module> read() {
    std::unique_ptr<Module> module(new Module());
    while (more()) {
      const std::string word = take();
      if (word == ".entry") {
        module->entries_.push_back(read_entry());
        if (!module->entries_.back()) return nullptr;
      } else if (word == ".shared") {
        shared_array(nullptr);
      }
    }
    return module;
  }

 private:
  std::vector<std::string> words_;
  size_t next_ = 0;
  std::string dynamic_;                           // name of the dynamic shared array
  std::map<std::string, u32> names_, labels_;     // of the entry: registers and arrays; where labels stand
  std::vector<std::pair<u32, std::string>> jumps_;
  Entry* entry_ = nullptr;

  bool more() const { return next_ < words_.size(); }
  const std::string& peek() const {
    static const std::string nothing;
    return more() ? words_[next_] : nothing;
  }
  std::string take() { return more() ? words_[next_++] : std::string(); }
  void skip_to(const char* mark) {
    while (more() && take() != mark) {
    }
  }

  std::unique_ptr<Entry> fail(const std::string& what) {
    fprintf(stderr, "simulator: PTX that it does not know: %s\n", what.c_str());
    return nullptr;
  }

  u32 constant(u64 value) {
    entry_->registers.push_back(value);
    return (u32)entry_->registers.size() - 1;
  }

  // .align N .b8 NAME[BYTES], static in an entry; dynamic outside, where its size is left out.
  void shared_array(Entry* entry) {
    u64 align = 1, bytes = 0;
    std::string name;
    while (more() && peek() != ";") {
      const std::string word = take();
      if (word == ".align") align = number(take());
      else if (word == "[" && is_number(peek())) bytes = number(take());
      else if (isalpha((u8)word[0]) || word[0] == '_') name = word;
    }
    if (!entry) {
      dynamic_ = name;
      return;
    }
    entry->statics = (entry->statics + align - 1) / align * align;
    names_[name] = constant(entry->statics);
    entry->statics += bytes;
  }

  // .reg .TYPE %NAME<COUNT>
  void registers() {
    take();
    const std::string name = take();
    take();
    const u64 count = number(take());
    for (u64 i = 0; i < count; ++i) names_[name + std::to_string(i)] = constant(~0ull);
  }

  std::unique_ptr<Entry> read_entry() {
    std::unique_ptr<Entry> entry(new Entry());
    entry_ = entry.get();
    names_.clear();
    labels_.clear();
    jumps_.clear();
    constant(0);                                   // UNGUARDED
    for (u32 i = 0; i < 5; ++i) names_[SPECIAL[i]] = entry->special[i] = constant(0);
    entry->kernel.name = take();
    while (more() && peek() != "{") {
      const std::string word = take();
      if (word == ".maxntid") entry->kernel.threads = (u32)number(take());
      else if (word == "[") entry->kernel.args_bytes = number(take());
      else if (word.find("_param_") != std::string::npos) names_[word] = UNGUARDED;
    }
    take();
    while (more() && peek() != "}") {
      if (!read_statement()) return nullptr;
    }
    if (take() != "}") return fail("an entry without an end");
    for (const auto& jump : jumps_) {
      const auto label = labels_.find(jump.second);
      if (label == labels_.end()) return fail("a jump to " + jump.second);
      entry->code[jump.first].at[0] = label->second;
    }
    // The dynamic array lies behind the static ones.
    if (names_.count(dynamic_)) entry->registers[names_[dynamic_]] = dynamic_base(*entry);
    const Entry* const whole = entry.get();
    entry->kernel.call = [whole](const void* args) { run(*whole, args); };
    return entry;
  }

  bool read_statement() {
    std::string word = take();
    if (word.back() == ':') {
      labels_[word.substr(0, word.size() - 1)] = (u32)entry_->code.size();
      return true;
    }
    if (word == ".reg") registers();
    if (word == ".shared") shared_array(entry_);
    if (word[0] == '.') {
      skip_to(";");
      return true;
    }
    Instruction instruction = {};
    if (word == "@") {
      word = take();
      instruction.negated = word == "!";
      const auto guard = names_.find(instruction.negated ? take() : word);
      if (guard == names_.end()) return fail("a guard that is not declared") != nullptr;
      instruction.guard = guard->second;
      word = take();
    }
    instruction.execute = find_operation(word, &instruction.access);
    if (!instruction.execute) return fail(word) != nullptr;
    u32 count = 0;
    while (more() && peek() != ";") {
      if (strchr("{}[],|", peek()[0])) {
        take();
      } else if (!operand(&instruction, &count)) {
        return fail("an operand of " + word) != nullptr;
      }
    }
    take();
    entry_->code.push_back(instruction);
    return true;
  }

  bool operand(Instruction* instruction, u32* count) {
    if (peek() == "+") {                            // [base+offset]
      take();
      const bool minus = peek() == "-";
      if (minus) take();
      instruction->offset = (i64)number(take()) * (minus ? -1 : 1);
      return true;
    }
    if (*count == sizeof instruction->at / sizeof *instruction->at) return false;
    u32& at = instruction->at[(*count)++];
    const bool minus = peek() == "-";
    if (minus) take();
    const std::string word = take();
    if (is_number(word)) {
      at = constant(minus ? -number(word) : number(word));
    } else if (word[0] == '$') {
      jumps_.emplace_back((u32)entry_->code.size(), word);
    } else {
      if (!dynamic_.empty() && word == dynamic_ && !names_.count(word)) names_[word] = constant(0);
      const auto name = names_.find(word);
      if (name == names_.end()) return false;
      at = name->second;
    }
    return true;
  }
};

std::unique_ptr<Module> Module::read(const std::string& text) { return Reader(text).read(); }

const Kernel* Module::find(const std::string& name) const {
  for (const auto& entry : entries_)
    if (entry->kernel.name == name) return &entry->kernel;
  return nullptr;
}

}  // namespace ptx
