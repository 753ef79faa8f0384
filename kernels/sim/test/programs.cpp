// Small programs of PTX: what instructions do that the kernels depend on, and races, each with the barrier that ends it
// and without.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "ptx.hpp"
#include "tests.hpp"

namespace {

// An entry of 64 threads and one pointer, which %rd1 holds, with shared memory at %rd2: %rd3 is the thread's own word
// there, %rd4 its left neighbour's, %rd5 the thread's own 16 bytes behind the pointer.
std::string program(const std::string& body) {
  return R"(
.version 8.4
.target sm_80
.address_size 64
.visible .entry program(.param .u64 program_param_0[8])
.maxntid 64, 1, 1
{
	.reg .pred %p<4>;
	.reg .b16 %rs<4>;
	.reg .f32 %f<8>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	.shared .align 16 .b8 words[1024];
	ld.param.u64 %rd1, [program_param_0];
	mov.u64 %rd2, words;
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd5, %r1, 4;
	add.s64 %rd3, %rd2, %rd5;
	add.s32 %r2, %r1, 63;
	and.b32 %r2, %r2, 63;
	mul.wide.u32 %rd5, %r2, 4;
	add.s64 %rd4, %rd2, %rd5;
	mul.wide.u32 %rd5, %r1, 16;
	add.s64 %rd5, %rd5, %rd1;
)" + body + "\n\tret;\n}\n";
}

// Runs blocks of the program in a process of its own; gives what that said before it died, or nothing.
std::string died_of(const std::string& body, u32 blocks) {
  int pipes[2];
  if (pipe(pipes) != 0) return "no pipe";
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], 2);
    const auto module = ptx::Module::read(program(body));
    if (module) {
      Memory<u32> memory(256);
      const u32* p = memory.get();
      simt::run({module->find("program")->call, &p, {blocks, 1, 1}, 64, 0, 0});
    }
    _exit(0);
  }
  close(pipes[1]);
  std::string said;
  char text[256];
  for (ssize_t n; (n = ::read(pipes[0], text, sizeof text)) > 0;) said.append(text, (size_t)n);
  close(pipes[0]);
  waitpid(child, nullptr, 0);
  return said;
}

void expect(const char* what, const std::string& body, const char* death, u32 blocks = 1) {
  const std::string said = died_of(body, blocks);
  check(death ? said.find(death) != std::string::npos : said.empty(), "%s: %s", what, said.empty() ? "nothing" : said.c_str());
}

// The first word that the program leaves in memory.
u32 result(const std::string& body) {
  const auto module = ptx::Module::read(program(body + "\n\tst.global.u32 [%rd1], %r4;"));
  Memory<u32> memory(256);
  const u32* p = memory.get();
  if (module) simt::run({module->find("program")->call, &p, {1, 1, 1}, 64, 0, 0});
  return memory[0];
}

void races() {
  const std::string write = "st.shared.u32 [%rd3], %r1;\n", read = "ld.shared.u32 %r4, [%rd4];\n";
  const std::string all = "bar.sync 0;\n", warp = "bar.warp.sync -1;\n";
  expect("a write, then a neighbour's read", write + read, "is read that another thread writes");
  expect("the same behind a barrier", write + all + read, nullptr);
  expect("the same behind a barrier of the warp, across warps", write + warp + read, "is read that another");
  expect("a read, then the owner's write", write + all + read + write, "race: ");
  expect("the same behind a barrier", write + all + read + all + write, nullptr);
  expect("two writes", "st.shared.u32 [%rd2], %r1;\n", "two threads write");
  // In the second warp alone: neighbours exchange their words; the last lane writes what all of them have read.
  const std::string half = "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $DONE;\n";
  const std::string within = half + "xor.b32 %r5, %r1, 1;\nmul.wide.u32 %rd6, %r5, 4;\nadd.s64 %rd6, %rd2, %rd6;\n";
  expect("in a warp", within + write + "ld.shared.u32 %r4, [%rd6];\n$DONE:", "race: ");
  expect("in a warp, behind a shuffle", within + write + "shfl.sync.idx.b32 %r6|%p2, %r1, 0, 31, -1;\nld.shared.u32 %r4, [%rd6];\n$DONE:",
         "race: ");
  expect("in a warp, behind its barrier", within + write + warp + "ld.shared.u32 %r4, [%rd6];\n$DONE:", nullptr);
  const std::string read_first = half + "ld.shared.u32 %r4, [%rd2];\n";
  const std::string last_writes = "setp.eq.s32 %p2, %r1, 63;\n@%p2 st.shared.u32 [%rd2], %r1;\n$DONE:";
  expect("a reader writes what others read too", read_first + last_writes, "is written that another thread reads");
  expect("the same behind a barrier of the warp", read_first + warp + last_writes, nullptr);
}

void copies() {
  // 16 bytes a thread; each reads its own.
  const std::string address = "shl.b32 %r6, %r1, 4;\ncvt.u64.u32 %rd6, %r6;\n";
  const std::string copy = address + "cp.async.cg.shared.global [%r6], [%rd5], 16, 16;\n";
  const std::string commit = "cp.async.commit_group;\n", wait = "cp.async.wait_group 0;\n", read = "ld.shared.u32 %r4, [%rd6];\n";
  expect("a copy that is not waited for", copy + commit + read, "on its way");
  expect("a copy that is in no group", copy + wait + read, "on its way");
  expect("a copy of the last group", copy + commit + "cp.async.wait_group 1;\n" + read, "on its way");
  expect("a copy that is waited for", copy + commit + wait + read, nullptr);
  expect("another's copy, waited for", copy + commit + wait + "xor.b32 %r7, %r6, 16;\ncvt.u64.u32 %rd7, %r7;\nld.shared.u32 %r4, [%rd7];\n",
         "race: ");
  expect("another's copy, behind a barrier",
         copy + commit + wait + "bar.sync 0;\nxor.b32 %r7, %r6, 16;\ncvt.u64.u32 %rd7, %r7;\nld.shared.u32 %r4, [%rd7];\n", nullptr);
}

void blocks() {
  const std::string write = "st.global.u32 [%rd5], %r1;\n", read = "ld.global.u32 %r4, [%rd5];\n";
  const std::string first = "mov.u32 %r8, %ctaid.x;\nsetp.eq.s32 %p1, %r8, 0;\n";
  const std::string second = "mov.u32 %r8, %ctaid.x;\nsetp.eq.s32 %p1, %r8, 1;\n";
  expect("two blocks write", write, "two blocks write", 2);
  expect("one block writes and reads", write + read, nullptr);
  expect("two blocks read", read, nullptr, 2);
  expect("a block reads, the next one writes", first + "@%p1 " + read + "@!%p1 " + write, "writes what another one reads", 2);
  const std::string first_two = "mov.u32 %r8, %ctaid.x;\nsetp.lt.u32 %p1, %r8, 2;\n";
  expect("a block reads, the one after the next writes", first_two + "@%p1 " + read + "@!%p1 " + write,
         "writes what another one reads", 3);
  expect("a block writes, the next one reads", second + "@!%p1 " + write + "@%p1 " + read, "reads what another one writes", 2);
  expect("a block copies what another one writes",
         first + "@%p1 " + write + "shl.b32 %r6, %r1, 4;\n@!%p1 cp.async.cg.shared.global [%r6], [%rd1], 16, 16;\n",
         "reads what another one writes", 2);
}

void refusals() {
  expect("an instruction that is not known", "sin.approx.f32 %f1, %f1;\n", "does not know: sin.approx.f32");
  expect("a register that is not declared", "mov.u32 %r99, %r1;\n", "an operand of mov.u32");
  expect("a guard that is not declared", "@%p9 mov.u32 %r4, %r1;\n", "a guard");
  expect("a text that ends too early", ".pragma \"", "without an end");
  expect("a barrier of some threads", "bar.sync 1, 32;\n", "a barrier other than");
  expect("a jump to nowhere", "bra $NOWHERE;\n", "a jump to $NOWHERE");
  expect("an access outside of shared memory", "ld.shared.u32 %r4, [%rd2+1024];\n", "outside of shared memory");
  expect("an access that is not aligned", "ld.shared.u32 %r4, [%rd2+2];\n", "not aligned");
  expect("half a warp at a shuffle", "shfl.sync.idx.b32 %r6|%p2, %r1, 0, 31, 65535;\n", "a part of a warp");
}

// Against the ISA's own definitions.
void values() {
  struct Case { const char* body; u32 value; };
  const Case cases[] = {
      {"mov.u32 %r5, 305419896;\nprmt.b32 %r4, %r5, 0, 4660;", 0x56341200u},         // selector 0x1234: bytes 4, 3, 2, 1
      {"mov.u32 %r5, 128;\nprmt.b32 %r4, %r5, 0, 8;", 0x808080ffu},                  // a byte's sign, then byte 0
      {"mov.u32 %r5, 171;\nmov.u32 %r6, -1;\nbfi.b32 %r4, %r5, %r6, 8, 8;", 0xffffabffu},
      {"mov.u32 %r5, 6;\nbrev.b32 %r4, %r5;", 0x60000000u},
      {"mov.u32 %r5, 4096;\nbfind.shiftamt.u32 %r4, %r5;", 19},
      {"mov.u32 %r5, 1;\nshl.b32 %r4, %r5, 32;", 0},
      {"mov.u32 %r5, -8;\nmad.lo.s32 %r4, %r5, 3, 5;", 0xffffffedu},
      {"mov.u32 %r5, -1;\nsetp.lt.u32 %p1, %r5, 1;\nselp.b32 %r4, 1, 2, %p1;", 2},
      {"mov.u32 %r5, -1;\nsetp.lt.s32 %p1, %r5, 1;\nselp.b32 %r4, 1, 2, %p1;", 1},
      {"mov.f32 %f1, 0f7FC00000;\nsetp.leu.f32 %p1, %f1, 0f3F800000;\nselp.b32 %r4, 1, 2, %p1;", 1},
      {"mov.f32 %f1, 0f7FC00000;\nsetp.ne.f32 %p1, %f1, 0f3F800000;\nselp.b32 %r4, 1, 2, %p1;", 2},
      {"mov.f32 %f1, 0f3F800000;\nmov.f32 %f2, 0f40000000;\ncvt.rn.bf16x2.f32 %r4, %f2, %f1;", 0x40003f80u},
      {"mov.f32 %f1, 0fFF800000;\nex2.approx.ftz.f32 %f2, %f1;\nmov.b32 %r4, %f2;", 0},
      {"mov.u16 %rs1, -3;\nmul.wide.u16 %r4, %rs1, 2;", 131066},
      {"mov.u32 %r4, 1;\n$LOOP:\nadd.s32 %r4, %r4, %r4;\nsetp.lt.u32 %p1, %r4, 100;\n@%p1 bra $LOOP;", 128},
      {"mov.u32 %r4, 7;\nsetp.eq.s32 %p1, %r4, 7;\n@!%p1 mov.u32 %r4, 8;", 7},
  };
  for (const Case& c : cases) {
    const u32 got = result(c.body);
    check(got == c.value, "%s: %#x, not %#x", c.body, got, c.value);
  }
}

}  // namespace

void test_programs() {
  races();
  copies();
  blocks();
  refusals();
  values();
}
