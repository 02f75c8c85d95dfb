#include "io/metrics/tensorboard_file.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "io/metrics/tensorboard_event.hpp"
#include "src/backend/backend.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using testing::ElementsAre;

// An independent reader, written from the formats' definitions.

std::uint32_t crc32c(const std::string& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
  }
  return crc ^ 0xffffffff;
}
std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8; }

template <class T>
T number(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Data of a file's records. Expects complete records with correct checksums.
std::vector<std::string> records(const std::string& path) {
  const std::string content = test::content_of(path);
  std::vector<std::string> all;
  for (std::size_t at = 0; at < content.size();) {
    const auto size = number<std::uint64_t>(content, at);
    EXPECT_EQ(number<std::uint32_t>(content, at + 8), masked(crc32c(content.substr(at, 8))));
    EXPECT_LE(at + size + 16, content.size());
    all.push_back(content.substr(at + 12, size));
    EXPECT_EQ(number<std::uint32_t>(content, at + 12 + size), masked(crc32c(all.back())));
    at += size + 16;
  }
  return all;
}

/// Fields of a protobuf message by number: the bytes of those with a size or a fixed size, the value of varints.
struct Message {
  explicit Message(const std::string& bytes) {
    std::size_t at = 0;
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes.at(at++));
        value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < bytes.size()) {
      const std::uint64_t tag = varint();
      if (tag % 8 == 0) {
        varints[tag / 8] = varint();
        continue;
      }
      const std::size_t size = tag % 8 == 1 ? 8 : tag % 8 == 5 ? 4 : varint();
      fields[tag / 8].push_back(bytes.substr(at, size));
      at += size;
    }
  }
  std::map<std::uint64_t, std::uint64_t> varints;
  std::map<std::uint64_t, std::vector<std::string>> fields;
};

/// Values by curve and step. Expects no step of a curve twice.
using Curves = std::map<std::string, std::map<std::int64_t, float>>;
Curves read(const std::string& folder) {
  Curves curves;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  for (const std::string& path : paths) {
    if (!path.ends_with(".trireme")) continue;
    const std::vector<std::string> all = records(path);
    if (all.empty()) continue;  // the run had no points
    EXPECT_EQ(Message(all.at(0)).fields.at(3).at(0), "brain.Event:2");
    for (std::size_t i = 1; i < all.size(); ++i) {
      const Message event(all[i]);
      EXPECT_GT(number<double>(event.fields.at(1).at(0), 0), 1.7e9) << "seconds since 1970";
      const auto step = static_cast<std::int64_t>(event.varints.at(2));
      const Message summary(event.fields.at(5).at(0));
      for (const std::string& bytes : summary.fields.at(1)) {
        const Message value(bytes);
        const bool is_new =
            curves[value.fields.at(1).at(0)].emplace(step, number<float>(value.fields.at(2).at(0), 0)).second;
        EXPECT_TRUE(is_new) << value.fields.at(1).at(0) << " at step " << step;
      }
    }
  }
  return curves;
}

std::vector<std::int64_t> steps(const Curves& curves, const std::string& name) {
  std::vector<std::int64_t> all;
  if (const auto found = curves.find(name); found != curves.end()) {
    for (const auto& [step, value] : found->second) all.push_back(step);
  }
  return all;
}

class TensorboardFileTest : public testing::Test {
 protected:
  TensorboardFile open(const train::Progress& done = {}) { return {options_, 6, *backend_, done}; }
  /// A record with 8 samples an iteration.
  static train::TrainRecord record(std::int64_t iteration) {
    train::TrainRecord record;
    record.iteration = iteration;
    record.consumed_samples = 8 * iteration;
    record.batch_size = 8;
    record.lm_loss = 5.5 - static_cast<double>(iteration);
    record.grad_norm = 0.25;
    record.learning_rate = 0.125;
    record.loss_scale = 1024;
    record.elapsed_ms = 250 * static_cast<double>(iteration);
    return record;
  }
  static train::EvaluationRecord evaluation(std::int64_t iteration, data::Split split) {
    return {.iteration = iteration, .loss = 2, .perplexity = 7.4, .split = split, .consumed_samples = 8 * iteration};
  }
  void write(const train::Progress& done, std::int64_t first, std::int64_t last) {
    TensorboardFile file = open(done);
    for (std::int64_t i = first; i <= last; ++i) file.write(record(i));
  }
  std::string only_file() const { return std::filesystem::directory_iterator(options_.folder)->path(); }

  const test::TemporaryDirectory directory_;
  const std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
  TensorboardOptions options_{.folder = directory_ / "runs/tensorboard"};
};

// RFC 3720, B.4.
TEST(Crc32c, MatchesThePublishedCheckValue) { EXPECT_EQ(crc32c("123456789"), 0xe3069283); }

TEST_F(TensorboardFileTest, HoldsMegatronsCurves) {
  options_.perplexity = options_.memory = options_.world_size = options_.timers = true;
  const Tensor taken(*backend_, DType::fp32, {256});
  {
    TensorboardFile file = open();
    train::TrainRecord first = record(1);
    first.sop_loss = 0.5;
    first.num_zeros = 3;
    first.params_norm = 1.5;
    first.decoupled_learning_rate = 0.25;
    file.write(first);
    train::EvaluationRecord code = evaluation(1, data::Split::valid);
    code.set = "code";
    file.write(code);
    file.write(evaluation(1, data::Split::valid));
    file.write(evaluation(1, data::Split::test));
  }
  const std::map<std::string, float> by_samples = {{"lm loss", 4.5},
                                                   {"sop loss", 0.5},
                                                   {"learning-rate", 0.125},
                                                   {"batch-size", 8},
                                                   {"loss-scale", 1024},
                                                   {"world-size", 6},
                                                   {"grad-norm", 0.25},
                                                   {"num-zeros", 3},
                                                   {"params-norm", 1.5},
                                                   {"decoupled-learning-rate", 0.25},
                                                   {"lm loss validation-code", 2},
                                                   {"lm loss validation-code ppl", std::exp(2.0F)},
                                                   {"lm loss validation", 2},
                                                   {"lm loss validation ppl", std::exp(2.0F)},
                                                   {"lm loss test", 2},
                                                   {"lm loss test ppl", std::exp(2.0F)}};
  Curves expected;
  for (const auto& [name, value] : by_samples) {
    expected[name] = {{1, value}};
    expected[name + " vs samples"] = {{8, value}};
  }
  const auto bytes = static_cast<float>(backend_->allocated_bytes());
  EXPECT_GE(bytes, 1024);
  expected["mem-allocated-bytes"] = {{1, bytes}};
  expected["mem-max-allocated-bytes"] = {{1, static_cast<float>(backend_->peak_allocated_bytes())}};
  expected["iteration-time"] = {{1, 0.25}};
  EXPECT_EQ(read(options_.folder), expected);
}

TEST_F(TensorboardFileTest, HoldsSamplesAsTexts) {
  {
    TensorboardFile file = open();
    file.write(train::SampleRecord{1, 8, {{"The", " ship\nsails"}, {"A", " crew"}}});
  }
  const std::vector<std::string> all = records(only_file());
  ASSERT_EQ(all.size(), 3u);
  const Message event(all[1]), summary(event.fields.at(5).at(0)), value(summary.fields.at(1).at(0));
  EXPECT_EQ(event.varints.at(2), 1u);
  EXPECT_EQ(value.fields.at(1).at(0), "sample 1");
  const Message tensor(value.fields.at(8).at(0)), metadata(value.fields.at(9).at(0));
  EXPECT_EQ(tensor.varints.at(1), 7u);  // DT_STRING
  EXPECT_EQ(tensor.fields.at(8), (std::vector<std::string>{"    The ship\n    sails"}));
  EXPECT_EQ(Message(metadata.fields.at(1).at(0)).fields.at(1).at(0), "text");
  EXPECT_EQ(metadata.varints.at(4), 2u);               // DATA_CLASS_TENSOR
  const ScalarEvent read_back = decode_event(all[1]);  // as a resumed run does, to find what it repeats
  EXPECT_EQ(read_back.step, 1);
  ASSERT_EQ(read_back.scalars.size(), 1u);
  EXPECT_EQ(read_back.scalars.front().tag, "sample 1");
}

TEST_F(TensorboardFileTest, HoldsExpertsByLayer) {
  {
    TensorboardFile file = open();
    train::TrainRecord first = record(1);
    first.experts = {
        {.layer = 2, .balance_loss = 1, .router_entropy = 2, .max_load = 1.5, .entropy = 1},
        {.layer = 4, .balance_loss = 1.5, .router_entropy = 1, .max_load = 2.5, .entropy = 0.75, .dropped = 0.5}};
    file.write(first);
  }
  const Curves curves = read(options_.folder);
  for (const auto& [name, value] : std::map<std::string, float>{{"load_balancing_loss", 1.25},
                                                                {"router-entropy", 1.5},
                                                                {"max-expert-load", 2.5},
                                                                {"expert-load-entropy", 0.75},
                                                                {"dropped-choices", 0.25},
                                                                {"moe/router_entropy_layer_2", 2},
                                                                {"moe/router_entropy_layer_4", 1},
                                                                {"moe/load_balancing_loss_layer_4", 1.5},
                                                                {"moe/max_expert_load_layer_4", 2.5},
                                                                {"moe/dropped_choices_layer_2", 0},
                                                                {"moe/dropped_choices_layer_4", 0.5}}) {
    EXPECT_EQ(curves.at(name).at(1), value) << name;
  }
}

TEST_F(TensorboardFileTest, OmitsDisabledCurves) {
  options_.loss_scale = options_.learning_rate = false;
  write({}, 1, 1);
  std::set<std::string> names;
  for (const auto& [name, points] : read(options_.folder)) {
    if (!name.ends_with(" vs samples")) names.insert(name);
  }
  EXPECT_THAT(names, ElementsAre("batch-size", "grad-norm", "lm loss"));
}

TEST_F(TensorboardFileTest, HasAPointEveryInterval) {
  options_.log_interval = 2;
  options_.timers = true;
  write({}, 1, 5);
  const Curves curves = read(options_.folder);
  EXPECT_THAT(steps(curves, "lm loss"), ElementsAre(2, 4));
  EXPECT_THAT(steps(curves, "lm loss vs samples"), ElementsAre(16, 32));
  EXPECT_EQ(curves.at("iteration-time").at(4), 0.875) << "the mean of 0.75 s and 1 s";
}

TEST_F(TensorboardFileTest, ARunThatResumesHasNoStepTwice) {
  write({}, 1, 5);
  std::ofstream(only_file(), std::ios::app | std::ios::binary) << std::string("\x30\0\0\0\0", 5);  // killed there
  write({.iteration = 3}, 4, 6);
  EXPECT_THAT(steps(read(options_.folder), "lm loss"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(steps(read(options_.folder), "lm loss vs samples"), ElementsAre(8, 16, 24, 32, 40, 48));
  // Both files are cut.
  write({.iteration = 2}, 3, 3);
  EXPECT_THAT(steps(read(options_.folder), "lm loss"), ElementsAre(1, 2, 3));
}

TEST_F(TensorboardFileTest, ARunThatMakesUpAnEvaluationHasItOnce) {
  {
    TensorboardFile file = open();
    file.write(record(1));
    file.write(evaluation(1, data::Split::valid));
    file.write(evaluation(1, data::Split::test));
  }
  const auto kept = [&](const train::Progress& done) {
    write(done, 2, 1);
    const Curves curves = read(options_.folder);
    EXPECT_THAT(steps(curves, "lm loss"), ElementsAre(1));
    return std::vector{steps(curves, "lm loss validation").size(), steps(curves, "lm loss test vs samples").size()};
  };
  EXPECT_THAT(kept({.iteration = 1, .tested = true}), ElementsAre(1, 1));
  EXPECT_THAT(kept({.iteration = 1}), ElementsAre(1, 0));
  EXPECT_THAT(kept({.iteration = 1, .evaluation_left = true}), ElementsAre(0, 0));
}

TEST_F(TensorboardFileTest, ARunFromTheStartReplacesItsOwnFilesAlone) {
  write({}, 1, 5);
  const std::string foreign = options_.folder + "/events.out.tfevents.1700000000.node7.42.0";
  std::ofstream(foreign) << "of another program";
  write({}, 1, 2);
  EXPECT_THAT(steps(read(options_.folder), "lm loss"), ElementsAre(1, 2));
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

TEST_F(TensorboardFileTest, KeepsTheEventsBeforeADamagedOne) {
  write({}, 1, 5);
  const std::vector<std::string> all = records(only_file());
  std::size_t third = 0;
  for (int i = 0; i < 5; ++i) third += all[static_cast<std::size_t>(i)].size() + 16;
  std::fstream(only_file(), std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<long>(third) + 20)
      .put(0);
  write({.iteration = 5}, 6, 6);
  EXPECT_THAT(steps(read(options_.folder), "lm loss"), ElementsAre(1, 2, 6));
}

}  // namespace
}  // namespace trireme::io
