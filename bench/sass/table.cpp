#include "bench/sass/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace trireme::sass {
namespace {

const std::map<std::string, int Expectation::*> fields{{"threads", &Expectation::threads},
                                                       {"blocks", &Expectation::blocks},
                                                       {"stack", &Expectation::stack_bytes},
                                                       {"loads", &Expectation::wide_loads},
                                                       {"stores", &Expectation::wide_stores},
                                                       {"copies", &Expectation::copies},
                                                       {"shared", &Expectation::shared_bytes},
                                                       {"inner", &Expectation::inner_turns},
                                                       {"hmma", &Expectation::hmma},
                                                       {"hgmma", &Expectation::hgmma},
                                                       {"ldsm", &Expectation::ldsm},
                                                       {"tile", &Expectation::tile},
                                                       {"dropout", &Expectation::dropout_tile},
                                                       {"kept", &Expectation::kept_tile}};

void set_field(Expectation& to, const std::string& field) {
  const std::size_t equals = std::min(field.find('='), field.size() - 1);
  const auto at = fields.find(field.substr(0, equals));
  const char* const end = field.data() + field.size();
  int value = 0;
  const auto [rest, error] = std::from_chars(field.data() + equals + 1, end, value);
  if (at == fields.end() || error != std::errc() || rest != end) {
    throw DisassemblyError(fmt::format("{}: '{}' is not a field of the table", to.line, field));
  }
  to.*at->second = value;
}

/// Returns the words of a line, without a comment after '#'. Spaces in "<...>" belong to the word.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char c : line.substr(0, line.find('#'))) {
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
    if ((c == ' ' || c == '\t') && depth == 0) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// Resident blocks of `threads` threads per multiprocessor of compute capability 9.0. Registers are allocated in units
/// of 256 per warp. `shared_bytes` includes 1 KiB for the system.
int blocks_at_once(int registers, int threads, int shared_bytes) {
  constexpr int max_threads = 2048, max_blocks = 32, register_file = 65536, max_shared_bytes = 228 << 10;
  const int of_warp = (registers * 32 + 255) / 256 * 256, warps = (threads + 31) / 32;
  const int by_registers = register_file / std::max(1, of_warp) / warps;
  return std::min({max_blocks, max_threads / threads, by_registers, max_shared_bytes / std::max(1024, shared_bytes)});
}

/// Maximum registers per thread for `blocks` resident blocks of `threads` threads.
int most_registers(int blocks, int threads) {
  int registers = 255;
  while (registers > 0 && blocks_at_once(registers, threads, 0) < blocks) --registers;
  return registers;
}

/// Collects the faults of one kernel.
class KernelCheck {
 public:
  KernelCheck(const Expectation& line, const Kernel& kernel, std::vector<std::string>& faults)
      : line_(line), kernel_(kernel), faults_(faults) {}

  void occupancy() {
    const int blocks = blocks_at_once(kernel_.registers, line_.threads, kernel_.shared_bytes + line_.shared_bytes);
    at_most("registers a thread", kernel_.registers, most_registers(line_.blocks, line_.threads),
            fmt::format("Of its blocks of {} threads {} would run at once, not {}. Give its __launch_bounds__ the "
                        "number of blocks, or keep less at once",
                        line_.threads, blocks, line_.blocks));
    at_least("blocks on a multiprocessor", blocks, line_.blocks, "Let it need less shared memory");
  }
  void launch_bounds() {
    if (!kernel_.max_threads) return;
    const char* remedy = "Give it the __launch_bounds__ of the blocks that are launched";
    at_least("threads in its launch bounds", *kernel_.max_threads, line_.threads, remedy);
    at_most("threads in its launch bounds", *kernel_.max_threads, line_.threads, remedy);
  }
  void local_memory() {
    const char* remedy =
        "It spills registers, or indexes an array by a variable: unroll the loop, or keep less at once";
    at_most("bytes of stack", kernel_.stack_bytes, line_.stack_bytes, remedy);
    if (line_.stack_bytes == 0) {
      at_most("accesses of local memory", count_of(kernel_, "LDL") + count_of(kernel_, "STL"), 0, remedy);
    }
  }
  void wide_accesses() {
    at_least("loads of 128 bits", count_of(kernel_, "LDG.", ".128"), line_.wide_loads,
             "Load through load_raw or PackedVec8 (cuda/kernels/vec8.cuh), and test the alignment");
    at_least("stores of 128 bits", count_of(kernel_, "STG.", ".128"), line_.wide_stores,
             "Store through store_raw (cuda/kernels/vec8.cuh), which keeps the compiler from dividing a store");
    at_least("asynchronous copies of 128 bits", count_of(kernel_, "LDGSTS.", ".128"), line_.copies,
             "Copy by gpu::copy_async, 16 bytes a thread");
  }
  void tile() {
    const char* give = "Give its line hmma or hgmma, ldsm and tile";
    if (line_.hmma == 0) at_most("products of tensor cores (HMMA)", count_of(kernel_, "HMMA"), 0, give);
    if (line_.hgmma == 0) at_most("products of warp groups (HGMMA)", count_of(kernel_, "HGMMA"), 0, give);
    if (line_.hmma + line_.hgmma == 0) return;
    const Counts plain = hot_path(kernel_, {PathOptions::Dropout::none, line_.inner_turns});
    const Counts dropped = hot_path(kernel_, {PathOptions::Dropout::drawn, line_.inner_turns});
    const char* fewer = "Move address arithmetic out of the loop, and unroll what depends on a constant";
    const char* divided = "The loop over tiles is divided, or not found: see its disassembly";
    at_least("HMMA a tile", plain.hmma, line_.hmma, divided);
    at_most("HMMA a tile", plain.hmma, line_.hmma, "Something is computed twice");
    at_least("HGMMA a tile", plain.hgmma, line_.hgmma, divided);
    at_most("HGMMA a tile", plain.hgmma, line_.hgmma, "Something is computed twice");
    at_most("LDSM a tile", plain.ldsm, line_.ldsm,
            "A fragment is loaded twice: share it between products (multiply_rows and multiply_columns)");
    at_least("LDSM a tile", plain.ldsm, line_.hmma > 0 ? 1 : 0,
             "Fragments must come by ldmatrix (load_matrices and load_transposed)");
    at_most("instructions a tile", plain.instructions, line_.tile, fewer);
    at_most("instructions a tile with dropout", dropped.instructions, line_.dropout_tile, fewer);
    if (line_.kept_tile == 0) return;
    const Counts kept = hot_path(kernel_, {PathOptions::Dropout::read, line_.inner_turns});
    at_most("instructions a tile with masks that are read", kept.instructions, line_.kept_tile, fewer);
  }

 private:
  void at_most(const char* figure, double value, double limit, const std::string& remedy) {
    if (value > limit) fault(figure, value, "at most", limit, remedy);
  }
  void at_least(const char* figure, double value, double limit, const std::string& remedy) {
    if (value < limit) fault(figure, value, "at least", limit, remedy);
  }
  void fault(const char* figure, double value, const char* bound, double limit, const std::string& remedy) {
    faults_.push_back(fmt::format("{} has {} {}, and {} allows {} {}. {}. If the change is meant, change that line.",
                                  kernel_.name, value, figure, line_.line, bound, limit, remedy));
  }

  const Expectation& line_;
  const Kernel& kernel_;
  std::vector<std::string>& faults_;
};

}  // namespace

std::vector<Expectation> read_table(std::istream& from, const std::string& name) {
  std::vector<Expectation> table;
  int number_of_line = 0;
  for (std::string line; std::getline(from, line);) {
    ++number_of_line;
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    Expectation expectation{.pattern = words[0], .line = fmt::format("{}:{}", name, number_of_line)};
    for (std::size_t i = 1; i < words.size(); ++i) set_field(expectation, words[i]);
    if (expectation.threads < 32 || expectation.blocks < 1) {
      throw DisassemblyError(fmt::format("{}: threads= and blocks= are missing", expectation.line));
    }
    table.push_back(std::move(expectation));
  }
  return table;
}

bool matches(const std::string& pattern, const std::string& name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  for (std::size_t rest = star; rest <= name.size(); ++rest) {
    if (matches(pattern.substr(star + 1), name.substr(rest))) return true;
  }
  return false;
}

std::vector<std::string> check(const std::vector<Expectation>& table, const std::vector<Kernel>& kernels) {
  std::vector<std::string> faults;
  std::set<const Expectation*> used;
  for (const Kernel& kernel : kernels) {
    const auto line = std::ranges::find_if(table, [&](const auto& one) { return matches(one.pattern, kernel.name); });
    if (line == table.end()) {
      faults.push_back(fmt::format("{} has no line in the table. Add one: the table says how.", kernel.name));
      continue;
    }
    used.insert(&*line);
    KernelCheck of_kernel(*line, kernel, faults);
    of_kernel.launch_bounds();
    of_kernel.occupancy();
    of_kernel.local_memory();
    of_kernel.wide_accesses();
    of_kernel.tile();
  }
  for (const Expectation& line : table) {
    if (!used.contains(&line)) {
      faults.push_back(
          fmt::format("{} ({}) is the line of no kernel. Delete it, or correct the name.", line.pattern, line.line));
    }
  }
  return faults;
}

}  // namespace trireme::sass
