// Runs a fuzz target without libFuzzer: on every file of a folder, then on such files with random changes until the
// time is up. The changes are reproducible. A failing input is left in a file.
// usage: NAME_replay FOLDER SECONDS, or NAME_replay FILE to run one input
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "src/base/hash.hpp"
#include "tests/fuzz/target.hpp"

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void run(const std::string& input) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(input.data());
  LLVMFuzzerTestOneInput(data, input.size());
}

/// Combines two inputs by a few changes, chosen by `draw`.
std::string changed(std::string input, const std::string& other, std::uint64_t draw) {
  std::uint64_t drawn = 0;
  const auto next = [&](std::size_t bound) {
    return static_cast<std::size_t>(trireme::splitmix64(draw, drawn++) % std::max<std::size_t>(bound, 1));
  };
  for (std::size_t change = 1 + next(4); change > 0; --change) {
    const std::size_t at = next(input.size());
    const std::size_t count = std::min(next(16), input.size() - at);
    switch (next(6)) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<char>(1 << next(8));
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(next(256));
        break;
      case 2:
        input.erase(at, count);
        break;
      case 3:
        input.insert(at, input.substr(next(input.size()), next(16)));
        break;
      case 4:
        input.insert(at, other.substr(next(other.size()), next(32)));
        break;
      default:
        for (std::size_t i = 0; i < count; ++i) input[at + i] = next(2) == 0 ? '\xff' : '\0';
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::vector<std::filesystem::path> paths{argv[1]};
  if (std::filesystem::is_directory(argv[1])) {
    paths.assign(std::filesystem::directory_iterator(argv[1]), {});
    std::ranges::sort(paths);
  }
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::fprintf(stderr, "%s\n", path.c_str());
    seeds.push_back(read_file(path));
    run(seeds.back());
  }
  if (argc < 3) return 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::stod(argv[2]));
  std::uint64_t draw = 0;
  for (; std::chrono::steady_clock::now() < end; ++draw) {
    const auto seed = [&](std::uint64_t i) -> const std::string& {
      return seeds[trireme::splitmix64(draw, i) % seeds.size()];
    };
    const std::string input = changed(seed(1000), seed(1001), draw);
    const trireme::fuzz::InputFile last("last", input);
    run(input);
  }
  std::fprintf(stderr, "%zu seeds, %llu changed inputs\n", seeds.size(), static_cast<unsigned long long>(draw));
}
