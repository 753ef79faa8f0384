// ptx.hpp - PTX, instruction by instruction, on the simulator's threads: the compiled kernels, with their inline assembly, in place of the
// kernels' sources compiled for the host. Every access is checked for races (races.hpp).
//
// Source: NVIDIA, "Parallel Thread Execution ISA", version 8.4. `read` refuses instructions that isa.cpp does not have.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace ptx {

struct Lane;
struct Instruction;
typedef void (*Execute)(Lane& lane, const Instruction& instruction);

// Memory that an instruction reads or writes: its space, the size of an element, how many of them.
enum class Space : u8 { PARAM, GLOBAL, SHARED };
struct Access { Space space; u8 bytes, count; };

constexpr u32 UNGUARDED = 0;

struct Instruction {
  Execute execute;
  u32 guard;           // register of the predicate, or UNGUARDED
  bool negated;
  Access access;
  u32 at[14];          // registers, constants among them; the instruction that a branch goes to
  i64 offset;          // of the first address
};

// A kernel's code. Registers hold 64 bits each; behind the declared ones stand its constants.
struct Entry {
  Kernel kernel;
  size_t statics = 0;                      // bytes of its static shared memory
  std::vector<Instruction> code;
  std::vector<u64> registers;              // as they stand at the start
  u32 special[5] = {};                     // registers of tid.x, ntid.x, ctaid.x, ctaid.y, nctaid.x
};

// A thread that runs an entry.
struct Lane {
  std::vector<u64> registers;
  const Entry* entry;
  const Instruction* next;                 // null: it has returned
  const u8* params;
  u8 *statics, *dynamics;

  bool is_true(u32 at) const { return registers[at] != 0; }
  template <class T> T get(u32 at) const {
    T value;
    memcpy(&value, &registers[at], sizeof value);
    return value;
  }
  template <class T> void set(u32 at, T value) {
    u64 bits = 0;
    memcpy(&bits, &value, sizeof value);
    registers[at] = bits;
  }
};

// Shared memory has addresses of its own: static arrays from 0, the dynamic one from `dynamic_base`.
u64 dynamic_base(const Entry& entry);

// What carries an instruction out, and the memory it touches. Null where it is not known.
Execute find_operation(const std::string& name, Access* access);

class Module {
 public:
  // Null, and a line on the standard error, where the text is not PTX that is known here.
  static std::unique_ptr<Module> read(const std::string& text);
  const Kernel* find(const std::string& name) const;

 private:
  std::vector<std::unique_ptr<Entry>> entries_;
  friend class Reader;
};

}  // namespace ptx
