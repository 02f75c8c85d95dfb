#include "io/metrics/tensorboard_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <ranges>

#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/machine.hpp"

namespace trireme::io {
namespace {

constexpr const char* option = "<tensorboard_dir>";
// TensorBoard reads all files with this text in their names, in the names' order.
constexpr const char* prefix = "events.out.tfevents.";
// Distinguishes this program's files.
constexpr const char* suffix = ".trireme";
constexpr std::string_view vs_samples = " vs samples";

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// Returns whether an event is later than `done`: of a later iteration or a pending evaluation.
bool is_to_come(const ScalarEvent& event, const train::Progress& done) {
  // A curve by samples follows the same points by iterations.
  if (event.scalars.empty() || event.scalars.front().tag.ends_with(vs_samples)) return false;
  if (event.step != done.iteration) return event.step > done.iteration;
  const auto has = [&](const char* split) { return event.scalars.front().tag.find(split) != std::string::npos; };
  return (done.evaluation_left && has(" validation")) || (!done.tested && has(" test"));
}

/// Returns the bytes of a file's events up to `done`; 0 if it has only the version. Excludes a damaged tail left by a
/// killed run.
std::int64_t kept_bytes(const std::string& content, const train::Progress& done) {
  std::size_t end = 0;
  bool has_points = false;
  for (std::size_t offset = 0;; end = offset) {
    const std::optional<std::string_view> data = next_tfrecord(content, offset);
    if (!data) break;
    const ScalarEvent event = decode_event(*data);
    if (is_to_come(event, done)) break;
    has_points = has_points || !event.scalars.empty();
  }
  return has_points ? static_cast<std::int64_t>(end) : 0;
}

/// Removes points beyond `done` from this program's files in a folder; all of them for a run from the start. Begins
/// with the newest file: if another job still writes to the folder, that file is locked and nothing is removed.
void cut_files(const std::string& folder, const train::Progress& done) {
  const std::vector<std::string> names = names_in(folder);
  for (const std::string& name : names | std::views::reverse) {
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    const std::string path = folder + "/" + name;
    AppendFile file(option, path);
    constexpr std::int64_t any_size = std::numeric_limits<std::int64_t>::max();
    const std::string content = done.iteration > 0 ? read_whole_file(path, any_size, Symlinks::follow) : std::string();
    const std::int64_t kept = kept_bytes(content, done);
    if (kept > 0) {
      file.cut(kept);
    } else if (::unlink(path.c_str()) != 0) {
      throw_system_error(fmt::format("{} {}: cannot be removed", option, path), errno);
    }
  }
}

}  // namespace

TensorboardFile::TensorboardFile(const TensorboardOptions& options, int world_size, const Backend& backend,
                                 const train::Progress& done)
    : options_(options), world_size_(world_size), backend_(backend) {
  make_folders(options.folder);
  cut_files(options.folder, done);
  const double now = now_s();
  // The time keeps the names in start order, even for two starts within a second.
  const std::string path =
      fmt::format("{}/{}{:.6f}.{}.{}{}", options.folder, prefix, now, host_name(), unique_suffix(), suffix);
  file_.emplace(option, path);
  unwritten_ = tfrecord(version_event(now));
}

void TensorboardFile::append(const std::string& records) {
  file_->append(unwritten_ + records);
  unwritten_.clear();
}

void TensorboardFile::add(std::int64_t iteration, std::int64_t samples, std::vector<Scalar> by_samples,
                          const std::vector<Scalar>& by_iteration) {
  const double now = now_s();
  ScalarEvent event{now, iteration, by_samples};
  event.scalars.insert(event.scalars.end(), by_iteration.begin(), by_iteration.end());
  for (Scalar& scalar : by_samples) scalar.tag += vs_samples;
  // In one call: a killed run leaves both or none, or a part that the next run truncates.
  append(tfrecord(encode(event)) + tfrecord(encode({now, samples, std::move(by_samples)})));
}

void TensorboardFile::write(const train::TrainRecord& r) {
  elapsed_ms_ += r.elapsed_ms;
  tflop_ += r.tflops_per_rank * r.elapsed_ms / 1000;
  iterations_ += 1;
  if (r.iteration % options_.log_interval != 0) return;
  std::vector<Scalar> curves{{"lm loss", r.lm_loss}};
  if (r.sop_loss) curves.push_back({"sop loss", *r.sop_loss});
  if (r.mtp_loss) curves.push_back({"mtp loss", *r.mtp_loss});
  if (options_.learning_rate) curves.push_back({"learning-rate", r.learning_rate});
  curves.push_back({"batch-size", static_cast<double>(r.batch_size)});
  if (options_.loss_scale) curves.push_back({"loss-scale", r.loss_scale});
  if (options_.world_size) curves.push_back({"world-size", static_cast<double>(world_size_)});
  curves.push_back({"grad-norm", r.grad_norm});
  if (r.num_zeros) curves.push_back({"num-zeros", static_cast<double>(*r.num_zeros)});
  if (!r.experts.empty()) {
    const train::LayerLoad experts = train::summary_of(r.experts);
    curves.push_back({"load_balancing_loss", experts.balance_loss});
    curves.push_back({"z_loss", experts.z_loss});
    curves.push_back({"router-entropy", experts.router_entropy});
    curves.push_back({"max-expert-load", experts.max_load});
    curves.push_back({"expert-load-entropy", experts.entropy});
    curves.push_back({"dropped-choices", experts.dropped});
  }
  if (r.params_norm) curves.push_back({"params-norm", *r.params_norm});
  if (r.decoupled_learning_rate) curves.push_back({"decoupled-learning-rate", *r.decoupled_learning_rate});
  std::vector<Scalar> others;
  for (const train::LayerLoad& layer : r.experts) {
    for (const auto& [name, value] : {std::pair{"load_balancing_loss", layer.balance_loss},
                                      {"z_loss", layer.z_loss},
                                      {"router_entropy", layer.router_entropy},
                                      {"max_expert_load", layer.max_load},
                                      {"dropped_choices", layer.dropped}}) {
      others.push_back({fmt::format("moe/{}_layer_{}", name, layer.layer), value});
    }
  }
  if (options_.memory) {
    others.push_back({"mem-allocated-bytes", static_cast<double>(backend_.allocated_bytes())});
    others.push_back({"mem-max-allocated-bytes", static_cast<double>(backend_.peak_allocated_bytes())});
  }
  if (options_.timers) {
    others.push_back({"iteration-time", elapsed_ms_ / iterations_ / 1000});
    if (options_.throughput) others.push_back({"throughput", tflop_ / (elapsed_ms_ / 1000)});
  }
  elapsed_ms_ = tflop_ = 0;
  iterations_ = 0;
  add(r.iteration, r.consumed_samples, std::move(curves), others);
}

void TensorboardFile::write(std::int64_t iteration, const train::RankTimes::Report& report) {
  std::vector<Scalar> times;
  for (const train::PartTimes& part : report.parts) {
    times.push_back({fmt::format("{}-time", part.name), part.ms[static_cast<std::size_t>(part.greatest)] / 1000});
  }
  if (!times.empty()) append(tfrecord(encode({now_s(), iteration, std::move(times)})));
}

void TensorboardFile::write(const train::EvaluationRecord& r) {
  const std::string split =
      (r.split == data::Split::test ? " test" : " validation") + (r.set.empty() ? "" : "-" + r.set);
  std::vector<Scalar> curves;
  const auto put = [&](const std::string& name, double loss) {
    curves.push_back({name + split, loss});
    if (options_.perplexity) curves.push_back({name + split + " ppl", std::exp(std::min(20.0, loss))});
  };
  put("lm loss", r.loss);
  if (r.sop_loss) put("sop loss", *r.sop_loss);
  add(r.iteration, r.consumed_samples, std::move(curves));
}

void TensorboardFile::write(const train::SampleRecord& r) {
  std::string records;
  for (std::size_t i = 0; i < r.samples.size(); ++i) {
    // An indented block of Markdown appears as it is.
    std::string text = "    " + r.samples[i].prompt + r.samples[i].text;
    for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
      text.insert(at + 1, 4, ' ');
    const TextEvent event{now_s(), r.iteration, fmt::format("sample {}", i + 1), std::move(text)};
    records += tfrecord(encode(event));
  }
  append(records);
}

void TensorboardFile::write(const train::TaskRecord& r) {
  std::vector<Scalar> curves;
  for (const auto& [name, value] : r.figures) curves.push_back({fmt::format("tasks/{} {}", r.task, name), value});
  add(r.iteration, r.consumed_samples, std::move(curves));
}

void TensorboardFile::write(const train::RewindRecord& r) {
  append(tfrecord(encode(TextEvent{now_s(), r.rewind.from, "rewind", train::text_of(r)})));
}

}  // namespace trireme::io
