#include "src/app/commands/eval/logits_file.hpp"

#include <optional>
#include <set>

#include "io/h5/file.hpp"
#include "io/posix/durable_file.hpp"
#include "src/base/log.hpp"
#include "src/infer/logits.hpp"

namespace trireme::app {
namespace {

std::string dataset(std::int64_t sample, const char* name) { return fmt::format("sample-{}/{}", sample, name); }

/// The file, on rank 0.
class LogitsFile {
 public:
  LogitsFile(const std::string& path, DType dtype)
      : target_(path), dtype_(dtype), file_(io::h5::File::create(target_.path())) {}

  void begin(const data::SampleSource& source, std::int64_t sample, std::int64_t vocabulary) {
    const data::SampleBuffer buffer(source.sequence_length(), {});
    const data::SampleView& view = buffer.view();
    source.read(sample, view);
    const std::int64_t s = source.sequence_length();
    file_.create_dataset(dataset(sample, "tokens"), DType::int32, {s}).write(TensorView(view.tokens.data(), {s}));
    file_.create_dataset(dataset(sample, "labels"), DType::int32, {s}).write(TensorView(view.labels.data(), {s}));
    logits_.emplace(file_.create_dataset(dataset(sample, "logits"), dtype_, {s, vocabulary}));
  }

  void add(std::int64_t first, std::span<const double> logits) {
    dispatch_float(dtype_, [&]<class T>() {
      std::vector<T> values;
      for (const double logit : logits) values.push_back(T(static_cast<Accumulation<T>>(logit)));
      logits_->write_rows(first, ConstTensorView(values.data(), {std::ssize(values)}));
    });
  }

  void commit() {
    logits_.reset();
    file_.close();
    target_.commit();
  }

 private:
  io::TemporaryFile target_;
  DType dtype_;
  io::h5::File file_;
  std::optional<io::h5::Dataset> logits_;
};

}  // namespace

void write_logits(train::ParallelModel& model, const data::SampleSource& source,
                  const std::vector<std::int64_t>& samples, const std::string& path) {
  TRIREME_CHECK(std::set(samples.begin(), samples.end()).size() == samples.size(), ConfigError,
                "<logits_samples> names a sample twice");
  Communicator& world = model.world();
  const DType dtype = model.execution().dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  std::optional<LogitsFile> file;
  const auto write = [&](const auto& action) {
    collectively(world, [&] {
      if (world.rank() == 0) action();
    });
  };
  write([&] { file.emplace(path, dtype); });
  infer::collect_logits(model, source, samples,
                        [&](std::int64_t sample, std::int64_t first, std::span<const double> logits) {
                          write([&] {
                            if (first == 0) file->begin(source, sample, model.config().vocabulary);
                            file->add(first, logits);
                          });
                        });
  write([&] { file->commit(); });
  log::info("wrote the logits of {} samples to {}", samples.size(), path);
}

}  // namespace trireme::app
