#include "io/metrics/metrics_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

using Json = nlohmann::ordered_json;

/// Formats a number with 17 digits, which reads back bit-exactly; null if not finite.
std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null"; }

/// Formats exposed communication as members of an object; empty if not measured.
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

/// Summary of the experts' load and the table by layer, each field followed by a comma; empty without experts.
std::string experts_text(const std::vector<train::LayerLoad>& layers) {
  if (layers.empty()) return "";
  const auto fields = [](const train::LayerLoad& load) {
    return fmt::format(R"("balance_loss": {}, "router_z_loss": {}, "router_entropy": {}, )"
                       R"("max_expert_load": {}, "expert_entropy": {}, "dropped_choices": {})",
                       number(load.balance_loss), number(load.z_loss), number(load.router_entropy),
                       number(load.max_load), number(load.entropy), number(load.dropped));
  };
  std::string rows;
  for (const train::LayerLoad& layer : layers) {
    rows += fmt::format(R"({}{{"layer": {}, {}}})", rows.empty() ? "" : ", ", layer.layer, fields(layer));
  }
  return fmt::format(R"({}, "experts": [{}], )", fields(train::summary_of(layers)), rows);
}

/// Returns whether a run resumed from `done` rewrites this record: one of a later iteration or a pending evaluation.
/// False for lines that are not records.
bool is_superseded(const Json& record, const train::Progress& done) {
  if (done.iteration == 0) return true;
  if (!record.is_object()) return false;
  const auto iteration = record.find("iteration");
  if (iteration == record.end() || !iteration->is_number_integer()) return false;
  if (iteration->get<std::int64_t>() != done.iteration) return iteration->get<std::int64_t>() > done.iteration;
  return (done.evaluation_left && record.contains("valid_loss")) || (!done.tested && record.contains("test_loss"));
}

/// Returns whether the content of a file has a record, or only the beginning of one.
bool holds_records(const std::string& text) {
  const std::string begin = R"({"iteration":)";
  return text.starts_with(begin) || begin.starts_with(text) || text.find('\n' + begin) != text.npos;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, const Backend* backend)
    : path_(path), backend_(backend), file_("<metrics_file>", path) {}

EarlierIterations MetricsFile::begin(const train::Progress& done) {
  EarlierIterations earlier;
  if (struct stat status{}; stat(path_.c_str(), &status) == 0 && status.st_size > 0) {
    earlier.last_written =
        static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
  }
  const std::string text = read_whole_file(path_, std::numeric_limits<std::int64_t>::max(), Symlinks::follow);
  TRIREME_CHECK(holds_records(text), ConfigError,
                "<metrics_file> {} holds no records of a run, and would be cut: name another file, or delete it",
                path_);
  std::int64_t kept_bytes = 0;
  std::string kept_after;  // lines after the first removed one
  bool removes = false;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const Json record = Json::parse(line, nullptr, false);
    const bool is_lost = is_superseded(record, done);
    if (record.is_object() && record.contains("lm_loss")) {
      const auto found = record.find("elapsed_ms");
      const double ms = found != record.end() && found->is_number() ? found->get<double>() : 0;
      if (is_lost) {
        earlier.lost += 1;
        earlier.lost_ms += ms;
      } else {
        earlier.kept_ms.push_back(ms);
      }
    }
    if (is_lost) {
      removes = true;
    } else if (removes) {
      kept_after += text.substr(begin, end + 1 - begin);
    } else {
      kept_bytes += static_cast<std::int64_t>(line.size()) + 1;
    }
  }
  file_.cut(kept_bytes);
  file_.append(kept_after);
  return earlier;
}

void MetricsFile::write(const train::TrainRecord& r) {
  const std::string sop_loss = r.sop_loss ? fmt::format(R"("sop_loss": {}, )", number(*r.sop_loss)) : "";
  std::string optional;
  for (const auto& [name, value] : {std::pair{"decoupled_learning_rate", r.decoupled_learning_rate},
                                    {"mtp_loss", r.mtp_loss},
                                    {"weight_decay", r.weight_decay},
                                    {"params_norm", r.params_norm}}) {
    if (value) optional += fmt::format(R"("{}": {}, )", name, number(*value));
  }
  if (r.skipped && r.skip_reason == train::Skip::requested) optional += R"("skip_requested": true, )";
  optional += experts_text(r.experts);
  if (r.num_zeros) optional += fmt::format(R"("num_zeros": {}, )", *r.num_zeros);
  file_.append(fmt::format(
      R"({{"iteration": {}, "consumed_samples": {}, "lm_loss": {}, {}"grad_norm": {}, "learning_rate": {}, {})"
      R"("loss_scale": {}, "skipped": {}, "elapsed_ms": {:.3f}, "tokens_per_second": {:.1f}, "tflops_per_rank": {:.4f}{}{}}})"
      "\n",
      r.iteration, r.consumed_samples, number(r.lm_loss), sop_loss, number(r.grad_norm), number(r.learning_rate),
      optional, number(r.loss_scale), r.skipped, r.elapsed_ms, r.tokens_per_second, r.tflops_per_rank, exposed_text(r),
      backend_ == nullptr ? "" : fmt::format(R"(, "peak_memory_bytes": {})", backend_->peak_allocated_bytes())));
}

void MetricsFile::write(const train::EvaluationRecord& r) {
  const char* split = r.split == data::Split::test ? "test" : "valid";
  std::string line = fmt::format(R"({{"iteration": {}, )", r.iteration);
  if (!r.set.empty()) line += fmt::format(R"("valid_set": {}, )", json_dump(Json(r.set)));
  line += fmt::format(R"("{}_loss": {}, "{}_ppl": {})", split, number(r.loss), split, number(r.perplexity));
  if (r.sop_loss) {
    line += fmt::format(R"(, "{}_sop_loss": {}, "{}_sop_accuracy": {})", split, number(*r.sop_loss), split,
                        number(*r.sop_accuracy));
  }
  file_.append(line + "}\n");
}

void MetricsFile::write(const train::SampleRecord& r) {
  Json samples = Json::array();
  for (const auto& sample : r.samples) samples.push_back({{"prompt", sample.prompt}, {"text", sample.text}});
  file_.append(json_dump(Json({{"iteration", r.iteration}, {"samples", samples}})) + "\n");
}

void MetricsFile::write(const train::TaskRecord& r) {
  std::string line = fmt::format(R"({{"iteration": {}, "eval_task": {})", r.iteration, json_dump(Json(r.task)));
  for (const auto& [name, value] : r.figures) line += fmt::format(R"(, "{}": {})", name, number(value));
  file_.append(line + "}\n");
}

void MetricsFile::write(const train::RewindRecord& r) {
  file_.append(
      fmt::format(R"({{"iteration": {}, "rewind_to": {}, "spike_from": {}, "spike_loss": {}, "mean_before": {}, )"
                  R"("deviation_before": {}, "first_sample_left_out": {}, "end_of_samples_left_out": {}}})"
                  "\n",
                  r.rewind.from, r.rewind.to, r.first_high, number(r.loss), number(r.before.mean),
                  number(r.before.deviation), r.rewind.first_sample, r.rewind.end_sample));
}

}  // namespace trireme::io
