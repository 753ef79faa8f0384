// Checks the kernels in the simulator: test [quick | full] [SCHEDULES] [first] [of=NAME]... [PTX...], where `first`
// stops at the first failure, and files of PTX are tested in place of the sources. With `of` run only tests that launch
// a kernel whose name begins with one of the names, and kernels that the files lack run from their sources.
// `test selftest FILE` writes what rk_selftest must give.
#include <cstdarg>
#include <cstring>
#include <fstream>
#include <sstream>

#include "ptx.hpp"
#include "tests.hpp"

static std::vector<std::unique_ptr<ptx::Module>> modules;
static std::vector<std::string> wanted;

static void read_module(const char* path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  modules.push_back(ptx::Module::read(text.str()));
  if (text.str().empty() || !modules.back()) {
    fprintf(stderr, "%s is not read\n", path);
    exit(1);
  }
}

const Kernel* kernel_under_test(const std::string& name) {
  for (const auto& module : modules)
    if (const Kernel* kernel = module->find(name)) return kernel;
  return modules.empty() || !wanted.empty() ? find_kernel(name) : nullptr;
}

bool is_wanted(const std::vector<std::string>& kernels) {
  const auto begins = [](const std::string& name, const std::string& with) { return name.compare(0, with.size(), with) == 0; };
  for (const std::string& name : kernels)
    for (const std::string& with : wanted)
      if (begins(name, with)) return true;
  return wanted.empty();
}

int failures = 0;
static int checks = 0;
static bool stop_at_first = false;

void check(bool ok, const char* format, ...) {
  ++checks;
  if (ok) return;
  ++failures;
  va_list args;
  va_start(args, format);
  printf("FAIL  ");
  vprintf(format, args);
  printf("\n");
  va_end(args);
  if (stop_at_first) exit(1);
}

static std::vector<u32> ragged(Random& r, u32 longest, bool full) {
  std::vector<u32> lengths = {1, 15, 16, 17, 1 + draw(r, longest)};
  if (full) lengths.insert(lengths.end(), {longest, 1 + draw(r, 48)});
  std::shuffle(lengths.begin(), lengths.end(), r);
  return lengths;
}

// Every query group with every head dimension, all types, block sizes, layouts and scorings in turn.
static const Kind KINDS[] = {Kind::BF16, Kind::F16, Kind::I8, Kind::E4M3};
static const u32 BLOCKS[] = {16, 32, 64, 1, 16, 48, 7};

static void attention_of(const Shape& shape, Random& r, u32 turn, u32 schedule, bool full) {
  const auto model = [&](u32 of) { return (turn + of) % 3 == 0 ? draw_model(shape, r) : Model(); };
  test_decode(shape, ragged(r, 330, full), 1 + turn % 5, model(0), schedule);
  std::vector<u32> lengths = {1, 16, 17, 90 + draw(r, 60)}, chunk = {1, draw(r, 16) + 1, 17, 1 + draw(r, 40)};
  if (full) {
    lengths.push_back(200 + draw(r, 100));
    chunk.push_back(1);
  }
  test_extend(shape, lengths, chunk, 1 + turn % 3, model(1), false, schedule);
  if (turn % 4 == 0) {
    for (u32& c : chunk) c = std::min(c, 16u);
    test_extend(shape, lengths, chunk, 1 + turn % 3, model(0), true, schedule);
  }
  const u32 shared = (1 + draw(r, 80 / shape.block)), prefix = shared * shape.block;
  std::vector<u32> sharers;
  for (u32 i = 0; i < 3 + turn % (full ? 12 : 4); ++i) sharers.push_back(prefix + (i == 0 ? 0 : draw(r, 70)));
  test_cascade(shape, sharers, shared, 1 + turn % 3, model(2), schedule);
  test_append(shape, 1 + draw(r, 60), false, schedule);
}

static void attention(u32 schedule, bool full) {
  Random r(schedule * 7919 + 1);
  u32 turn = schedule;
  static const u32 DIMS[][2] = {{64, 64}, {128, 128}, {96, 96}, {192, 192}, {192, 128}, {256, 256}};
  static const u32 GROUPS[] = {1, 4, 7, 8, 16};
  for (const auto& dims : DIMS)
    for (u32 g = 0; g < 5; ++g)
      for (u32 kind = 0; kind < 4; ++kind, ++turn) {
        const u32 group = GROUPS[g];
        const bool usual = dims[0] == 64 || dims[0] == 128;
        if (!usual && kind > 1) continue;                   // elements of 8 bits have the usual sizes
        // Of the other sizes each type once a schedule, with another group each time.
        if (!full && (usual ? (turn / 4 + kind) % 4 : (g + kind + schedule) % 5)) continue;
        const Shape shape = {{KINDS[kind]}, dims[0], 1 + turn % 2, group, BLOCKS[turn % 7], turn / 3 % 2 == 1, dims[1]};
        attention_of(shape, r, turn, schedule, full);
        if (group != 1) test_empty(shape, schedule);
        if (!shape.type.scaled()) test_merge(shape, schedule);
      }
}

// Long enough that every ring and table window comes round, and that 64-bit offsets are needed.
static void long_sequences(u32 schedule) {
  const Kind kind = KINDS[schedule % 4], other = KINDS[(schedule + 1) % 4];
  const Shape narrow = {{kind}, 64, 1, 3, BLOCKS[schedule % 5], schedule % 2 == 1, 64};
  test_decode(narrow, {2400 + schedule}, 1, Model(), schedule);
  test_extend(narrow, {1100 + schedule}, {3}, 1, Model(), false, schedule);
  const Shape wide = {{other}, 128, 2, 2, BLOCKS[(schedule + 1) % 3], schedule % 2 == 1, 128};
  test_decode(wide, {2200}, 2, Model(), schedule);
  test_extend(wide, {700}, {70}, 2, Model(), false, schedule);
}

// Latent vectors, for numbers of query heads that fill an item of 16 or of 32, or not, in one item
// and in several.
static void latents(u32 schedule, bool full) {
  Random r(schedule * 5381 + 3);
  static const u32 HEADS[][2] = {{16, 1}, {128, 4}, {5, 1}, {24, 1}, {40, 4}, {32, 2}};
  for (u32 turn = 0; turn < 6; ++turn) {
    if (!full && turn % 2 != schedule % 2) continue;
    const Kind kind = (turn / 2 + schedule / 2) % 2 ? Kind::F16 : Kind::BF16;
    const u32 block = BLOCKS[(turn + schedule) % 7];
    const Shape shape = {{kind}, 576, 1, HEADS[turn][0], block, false, 512, HEADS[turn][1]};
    std::vector<u32> lengths = {1, 31 + draw(r, 3), 33 + draw(r, turn == 1 ? 60 : 170)};
    if (full) lengths.push_back(400 + draw(r, 100));
    test_decode(shape, lengths, 1 + turn % 3, turn < 4 ? draw_model(shape, r) : Model(), schedule);
    test_empty(shape, schedule);
    if (turn == 3 || turn == 4) test_merge(shape, schedule);
    // Their rows have no values of their own.
    test_append({{kind}, 576, 1, 1, block, false, 0}, 1 + draw(r, 30), false, schedule);
  }
}

// So many heads that heads x tokens of a block, and heads x elements, take more than 16 bits.
static void many_heads(u32 schedule) {
  const Shape shape = {{KINDS[schedule % 4]}, 128, 80, 16, 32, schedule % 2 == 1, 128};
  test_decode(shape, {41}, 1, Model(), schedule);
  test_extend(shape, {33}, {2}, 1, Model(), false, schedule);
  test_append(shape, 40, false, schedule);
}

// Numbers at the ends of their ranges.
static void extremes(u32 schedule) {
  const u32 dim = 64 * (1 + schedule % 2), block = BLOCKS[schedule % 7];
  for (Kind kind : {Kind::I8, Kind::E4M3}) {
    const Shape shape = {{kind}, dim, 1 + schedule % 2, 3, block, schedule % 4 > 1, dim};
    test_fading(shape, schedule);
    test_ranges(shape, schedule);
    // Scales at offsets that take more than 32 bits, in pages that are looked up for each token.
    test_ranges({{kind}, 128, 4, 2, 7, schedule % 2 == 1, 128}, schedule);
  }
  // Slopes that take the scores of all keys but the last few out of the range of a float.
  for (const Shape& shape : {Shape{{KINDS[schedule % 4]}, dim, 1, 3, block, false, dim},
                             Shape{{KINDS[schedule % 2]}, 576, 1, 16, block, false, 512, 1}}) {
    Model model;
    model.slopes.assign(shape.q_heads(), 1e38f);
    test_decode(shape, {1, 17, 90}, 3, model, schedule);
    if (!shape.latent_items) test_extend(shape, {90}, {20}, 1, model, false, schedule);
  }
}

// Two key-value heads an item, in turn with scorings and pages of every kind.
static void pairs(u32 schedule) {
  Random r(schedule + 177);
  static const u32 GROUPS[] = {8, 1, 5, 4};
  for (u32 turn = 0; turn < 2; ++turn) {
    const u32 of = schedule + turn * 3;
    const Shape shape = {{KINDS[2 + turn]}, 128, of % 3 == 1 ? 4u : 2u, GROUPS[of % 4], BLOCKS[of % 7], of % 4 > 1, 128, 0, true};
    test_decode(shape, ragged(r, 330, true), 1 + of % 5, of % 2 ? draw_model(shape, r) : Model(), schedule);
    test_fading(shape, schedule);
    test_ranges(shape, schedule);
    test_empty(shape, schedule);
    test_decode(shape, {2200}, 2, Model(), schedule);
  }
}

static void movement(u32 schedule) {
  Random r(schedule + 99);
  test_copy(1, 1 + draw(r, 5000), 1 + draw(r, 3), schedule);
  test_copy(1, 2048, 2, schedule);
  test_copy(1 + draw(r, 4), 1 + draw(r, 300), 1 + draw(r, 3), schedule);
  test_compare(9, 40, schedule);
  test_compare(7, 700, schedule);
  test_compare(4, 2600, schedule);
  test_bandwidth(1 + draw(r, 30000), schedule);
  test_append({{Kind::BF16}, 64, 1, 1, 16, false, 64}, 4, true, schedule);
  test_widening(schedule);
  test_nan({{Kind::E4M3}, 64 * (1 + schedule % 2), 2, 4, 16, schedule % 4 > 1, 64 * (1 + schedule % 2)}, schedule);
}

int main(int argc, char** argv) {
  guard::explain_faults();
  if (argc == 3 && !strcmp(argv[1], "selftest")) {
    test_selftest(0, argv[2]);
    return failures != 0;
  }
  const bool full = argc > 1 && !strcmp(argv[1], "full");
  const u32 schedules = argc > 2 ? (u32)atoi(argv[2]) : full ? 12 : 4;
  for (int i = 3; i < argc; ++i) {
    if (!strcmp(argv[i], "first")) stop_at_first = true;
    else if (!strncmp(argv[i], "of=", 3)) wanted.push_back(argv[i] + 3);
    else read_module(argv[i]);
  }
  if (wanted.empty()) {
    test_queues();
    test_programs();
  }
  for (u32 schedule = 0; schedule < schedules; ++schedule) {
    test_selftest(schedule, nullptr);
    movement(schedule);
    latents(schedule, full);
    attention(schedule, full);
    long_sequences(schedule);
    extremes(schedule);
    pairs(schedule);
    if (schedule < 4) many_heads(schedule);
  }
  printf("%d checks, %d failed\n", checks, failures);
  return failures != 0;
}
