#include <unistd.h>

#include <algorithm>

#include "src/base/hash.hpp"
#include "src/base/timer.hpp"
#include "src/selftest/check.hpp"

namespace trireme::selftest {
namespace {

constexpr std::size_t file_size_bytes = std::size_t{16} << 20;
/// File systems are shared with other jobs: only rates below this share of the median are suspicious.
constexpr double rate_tolerance = 0.2;

constexpr const char* file_prefix = "selftest_file-";

/// A file of one rank, removed at the end.
class TrialFile {
 public:
  TrialFile(Files& files, std::string path) : files_(files), path_(std::move(path)) {}
  ~TrialFile() { files_.remove(path_); }
  TrialFile& operator=(TrialFile&&) = delete;
  const std::string& path() const { return path_; }

 private:
  Files& files_;
  std::string path_;
};

/// Content of the file of a rank: no two ranks have equal blocks.
std::vector<std::byte> content_of(int rank) {
  std::vector<std::uint64_t> words(file_size_bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = splitmix64(static_cast<std::uint64_t>(rank), i);
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

/// Returns the difference between `read` and `expected`; empty: none.
std::string difference(const std::vector<std::byte>& read, const std::vector<std::byte>& expected) {
  if (read.size() != expected.size()) return fmt::format("{} bytes instead of {}", read.size(), expected.size());
  if (digest(read.data(), read.size()) == digest(expected.data(), expected.size())) return "";
  std::size_t i = 0;
  while (i < read.size() && read[i] == expected[i]) ++i;
  return fmt::format("byte {} of {} is wrong", i, read.size());
}

Result fault(const std::string& detail) {
  return {.check = "file system", .passed = false, .value = 1, .unit = "wrong", .detail = detail};
}

Result rate(const Context& context, const char* check, double seconds) {
  return {.check = check,
          .item = fmt::format("{} MiB a rank", file_size_bytes >> 20),
          .kind = Kind::rate,
          .value = 1e-6 * static_cast<double>(file_size_bytes) / seconds,
          .unit = "MB/s",
          .min_share = context.min_share * rate_tolerance};
}

/// Rank whose file this one reads: on another node if possible.
int other_rank(Context& context) {
  const std::vector<int> nodes = nodes_of_ranks(context);
  const int size = context.world.size();
  for (int distance = 1; distance < size; ++distance) {
    const int rank = (context.place.rank + distance) % size;
    if (nodes[static_cast<std::size_t>(rank)] != context.place.node) return rank;
  }
  return (context.place.rank + 1) % size;
}

/// Writes and reads this rank's file.
void try_own_file(const Context& context, const std::string& path, std::vector<Result>& results) {
  const std::vector<std::byte> content = content_of(context.place.rank);
  Timer timer;
  context.files->write_and_sync(path, content);
  results.push_back(rate(context, "file write and sync rate", timer.elapsed_s()));
  timer.restart();
  const std::vector<std::byte> read = context.files->read(path);
  results.push_back(rate(context, "file read rate", timer.elapsed_s()));
  const std::string found = difference(read, content);
  if (!found.empty()) results.push_back(fault(fmt::format("{}, read after writing: {}", path, found)));
}

void try_other_file(const Context& context, const std::string& path, int rank, std::vector<Result>& results) {
  const std::string found = difference(context.files->read(path), content_of(rank));
  if (found.empty()) return;
  results.push_back(fault(fmt::format("{}, which rank {} has written: {}", path, rank, found)));
}

std::vector<Result> check_files(Context& context) {
  if (context.folder.empty() || context.files == nullptr) {
    return {{.check = "file system", .kind = Kind::skipped, .detail = "<save> names no folder to write to"}};
  }
  const std::string token = broadcast_text(context.world,
                                           fmt::format("{:x}", mix64(static_cast<std::uint64_t>(::getpid()) << 32 ^
                                                                     static_cast<std::uint64_t>(::time(nullptr)))),
                                           0);
  const auto path_of = [&](int rank) {
    return fmt::format("{}/{}{}-rank{}", context.folder, file_prefix, token, rank);
  };
  if (context.place.rank == 0) context.files->remove_old(context.folder, file_prefix);
  const int other = other_rank(context);
  const TrialFile file(*context.files, path_of(context.place.rank));
  std::vector<Result> results;
  const auto attempt = [&](const std::function<void()>& step) {
    try {
      step();
    } catch (const std::exception& error) {
      results.push_back(fault(error.what()));
    }
  };
  attempt([&] { try_own_file(context, file.path(), results); });
  const auto is_faulty = [&] { return !std::ranges::all_of(results, &Result::passed); };
  // A rank that could not write leaves no file to read: its own result says so.
  const std::vector<std::string> faulty = all_gather_text(context.world, is_faulty() ? "faulty" : "");
  if (faulty[static_cast<std::size_t>(other)].empty() && other != context.place.rank) {
    attempt([&] { try_other_file(context, path_of(other), other, results); });
  }
  context.world.barrier();  // the files stay until all have been read
  if (is_faulty()) return results;
  results.push_back({.check = "file system",
                     .unit = "wrong",
                     .detail = fmt::format("{}: own file and that of rank {} read back", context.folder, other)});
  return results;
}

}  // namespace

Check file_check() {
  return {"file system", "digests and rates of files that are written, synced and read", Scope::ranks, check_files};
}

}  // namespace trireme::selftest
