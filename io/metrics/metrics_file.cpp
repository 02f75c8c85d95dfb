#include "io/metrics/metrics_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/posix/system_call.hpp"

namespace trireme::io {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const char* what, const std::string& path) {
  throw_system_error(fmt::format("<metrics_file> {}: {}", path, what), errno);
}

/// A number with 17 digits, so that reading it gives the same bits; null where it is not finite.
std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null"; }

/// Exposed communication as members of an object; nothing where it was not measured.
std::string exposed_text(const train::TrainRecord& record) {
  if (!record.exposed_ms) return "";
  double sum_ms = 0;
  std::string by_group;
  for (const auto& [group, ms] : *record.exposed_ms) {
    sum_ms += ms;
    by_group += fmt::format(R"({}"{}": {:.3f})", by_group.empty() ? "" : ", ", group, ms);
  }
  return fmt::format(R"(, "exposed_communication_ms": {:.3f}, "exposed_ms_by_group": {{{}}})", sum_ms, by_group);
}

/// Bytes of the lines up to and including iteration `done.iteration`, without its evaluations that follow: the part
/// that a resumed run keeps. A damaged last line of a killed run is removed, too.
std::int64_t kept_bytes(const std::string& path, const train::Progress& done) {
  std::ifstream in(path, std::ios::binary);
  std::int64_t kept = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const Json record = Json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("iteration") || !record["iteration"].is_number_integer() ||
        record["iteration"].get<std::int64_t>() > done.iteration) {
      break;
    }
    const bool to_come =
        (done.evaluation_left && record.contains("valid_loss")) || (!done.tested && record.contains("test_loss"));
    if (to_come && record["iteration"].get<std::int64_t>() == done.iteration) break;
    kept += static_cast<std::int64_t>(line.size()) + 1;
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(std::string path, const train::Progress& done) : path_(std::move(path)) {
  const std::int64_t kept = done.iteration > 0 ? kept_bytes(path_, done) : 0;
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) fail("cannot be opened", path_);
  if (::ftruncate(file_.get(), kept) != 0) fail("cannot be cut", path_);
}

void MetricsFile::append(const std::string& line) {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written", path_);
    done += static_cast<std::size_t>(written);
  }
}

void MetricsFile::write(const train::TrainRecord& r) {
  const std::string sop_loss = r.sop_loss ? fmt::format(R"("sop_loss": {}, )", number(*r.sop_loss)) : "";
  append(fmt::format(
      R"({{"iteration": {}, "consumed_samples": {}, "lm_loss": {}, {}"grad_norm": {}, "learning_rate": {}, )"
      R"("loss_scale": {}, "skipped": {}, "elapsed_ms": {:.3f}, "tokens_per_second": {:.1f}, "tflops_per_rank": {:.4f}{}}})"
      "\n",
      r.iteration, r.consumed_samples, number(r.lm_loss), sop_loss, number(r.grad_norm), number(r.learning_rate),
      number(r.loss_scale), r.skipped, r.elapsed_ms, r.tokens_per_second, r.tflops_per_rank, exposed_text(r)));
}

void MetricsFile::write(const train::EvaluationRecord& r) {
  const char* split = r.split == data::Split::test ? "test" : "valid";
  std::string line = fmt::format(R"({{"iteration": {}, "{}_loss": {}, "{}_ppl": {})", r.iteration, split,
                                 number(r.loss), split, number(r.perplexity));
  if (r.sop_loss) {
    line += fmt::format(R"(, "{}_sop_loss": {}, "{}_sop_accuracy": {})", split, number(*r.sop_loss), split,
                        number(*r.sop_accuracy));
  }
  append(line + "}\n");
}

}  // namespace trireme::io
