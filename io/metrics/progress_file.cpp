#include "io/metrics/progress_file.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "io/metrics/append_file.hpp"

namespace trireme::io {
namespace {

constexpr const char* start_text = "Starting job";
constexpr const char* saved_text = "Saved checkpoint";
constexpr const char* begun_text = "Saving async checkpoint";
constexpr const char* arrived_text = "Saved async checkpoint";

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  return fields;
}

/// Returns the number after ": " in a field; 0 if none.
double number_of(const std::vector<std::string>& fields, std::size_t field) {
  if (field >= fields.size()) return 0;
  const std::size_t colon = fields[field].find(": ");
  return colon == std::string::npos ? 0 : std::strtod(fields[field].c_str() + colon + 2, nullptr);
}

/// Parses a line's local time.
std::time_t time_of(const std::string& text) {
  std::tm parts{};
  parts.tm_isdst = -1;
  return strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &parts) == nullptr ? 0 : std::mktime(&parts);
}

}  // namespace

ProgressFile::ProgressFile(const std::string& folder, int ranks, const RunWork& work, std::function<std::time_t()> now)
    : path_(folder + "/progress.txt"), ranks_(ranks), now_(std::move(now)), start_{now_(), work.flops} {
  std::error_code ignored;  // the file's own error is more specific
  std::filesystem::create_directories(folder, ignored);
  append(start_text);
}

void ProgressFile::append(const std::string& event) {
  const char* job = std::getenv("SLURM_JOB_ID");
  // Reopened for each line: the next job may have moved the folder of a hanging run.
  AppendFile("<log_progress>", path_)
      .append(fmt::format("{:%Y-%m-%d %H:%M:%S}\tJob ID: {}\t# GPUs: {}\t{}\n", fmt::localtime(now_()),
                          job == nullptr ? "" : job, ranks_, event));
}

ProgressFile::Start ProgressFile::first_start() const {
  std::ifstream in(path_);
  std::optional<Start> first;
  double saved_flops = 0, begun_flops = 0;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() < 4) continue;
    const std::string& event = fields[3];
    if (event == saved_text) saved_flops = number_of(fields, 7);
    if (event == begun_text) begun_flops = number_of(fields, 7);
    if (event == arrived_text && begun_flops > 0) saved_flops = begun_flops;
    if (number_of(fields, 2) != ranks_) {
      first.reset();
    } else if (event == start_text && !first) {
      first = {time_of(fields[0]), saved_flops};
    }
  }
  return first.value_or(start_);
}

void ProgressFile::add_checkpoint(const RunWork& work, bool is_begun) {
  const auto tflops = [&](const Start& since) {
    const double seconds = std::max(1.0, std::difftime(now_(), since.time));
    return (work.flops - since.flops) / seconds / 1e12 / ranks_;
  };
  append(
      fmt::format("{}\tIteration: {}\tJob throughput: {:.1f} TFLOP/s/GPU\tCumulative throughput: {:.1f} TFLOP/s/GPU\t"
                  "Floating-point operations: {:.2e}\tTokens (in billions): {:.2f}",
                  is_begun ? begun_text : saved_text, work.iteration, tflops(start_), tflops(first_start()), work.flops,
                  work.tokens / 1e9));
}

void ProgressFile::add_arrival(std::int64_t iteration) {
  append(fmt::format("{}\tIteration: {}", arrived_text, iteration));
}

}  // namespace trireme::io
