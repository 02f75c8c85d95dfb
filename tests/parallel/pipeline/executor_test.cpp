#include "src/parallel/pipeline/executor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "src/base/hash.hpp"
#include "tests/fakes/recording_communicator.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::parallel {
namespace {

/// Messages of a pipeline: all of one length, or each micro-batch's another one in each run.
enum class Lengths { same, different };

/// A chunk multiplies by its weight w = position in the model + 2. The model's input is (micro-batch + 1) (element +
/// 1), its loss the sum of its outputs. So every number is a small integer, and sums are exact. Unlike a real stage it
/// keeps views of its inputs, and so detects a buffer that changes too early.
class ToyStage final : public Stage {
 public:
  ToyStage(int rank, int stages, int chunks, std::int64_t elements, bool dawdles, Lengths lengths = Lengths::same)
      : rank_(rank), stages_(stages), chunks_(chunks), elements_(elements), dawdles_(dawdles), lengths_(lengths) {
    weight_gradient.assign(static_cast<std::size_t>(chunks), 0);
  }

  DType boundary_dtype() const override { return DType::fp64; }
  Shape boundary_shape(int micro_batch) const override {
    return {lengths_ == Lengths::same ? elements_ : (elements_ * ((micro_batch + run) % 3 + 1) + 2) / 3};
  }
  bool is_first(int chunk) const override { return position(chunk) == 0; }
  bool is_last(int chunk) const override { return position(chunk) + 1 == stages_ * chunks_; }

  void forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) override {
    dawdle(micro_batch);
    EXPECT_EQ(static_cast<bool>(input), !is_first(chunk));
    EXPECT_EQ(static_cast<bool>(output), !is_last(chunk));
    inputs_[{chunk, micro_batch}] = input;
    expect_factor(chunk, micro_batch, input, factor_before(chunk));
    if (output) write(output, micro_batch, factor_before(chunk) * weight(chunk));
    ++forwards;
  }

  void backward_input(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override {
    dawdle(micro_batch + 100);
    EXPECT_EQ(static_cast<bool>(output_gradient), !is_last(chunk));
    EXPECT_EQ(static_cast<bool>(input_gradient), !is_first(chunk));
    output_gradients_[{chunk, micro_batch}] = output_gradient;
    // The gradient differs by micro-batch, so that one taken for another shows.
    const double gradient = factor_after(chunk);
    expect_factor(chunk, micro_batch, output_gradient, gradient);
    if (input_gradient) write(input_gradient, micro_batch, gradient * weight(chunk));
  }

  void backward_weight(int chunk, int micro_batch) override {
    const ConstTensorView input = inputs_.at({chunk, micro_batch});
    const ConstTensorView gradient = output_gradients_.at({chunk, micro_batch});
    expect_factor(chunk, micro_batch, input, factor_before(chunk));
    expect_factor(chunk, micro_batch, gradient, factor_after(chunk));
    weight_gradient[static_cast<std::size_t>(chunk)] += micro_batch + 1;
    inputs_.erase({chunk, micro_batch});
    output_gradients_.erase({chunk, micro_batch});
    ++backwards;
  }

  std::vector<double> weight_gradient;  // by chunk: the sum of micro-batch + 1
  int run = 0;
  int forwards = 0;
  int backwards = 0;

 private:
  int position(int chunk) const { return chunk * stages_ + rank_; }
  double weight(int chunk) const { return position(chunk) + 2; }
  /// Product of the weights before, and after, the chunk.
  double factor_before(int chunk) const {
    double product = 1;
    for (int i = 0; i < position(chunk); ++i) product *= i + 2;
    return product;
  }
  double factor_after(int chunk) const {
    double product = 1;
    for (int i = position(chunk) + 1; i < stages_ * chunks_; ++i) product *= i + 2;
    return product;
  }
  void write(TensorView to, int micro_batch, double factor) const {
    ASSERT_EQ(to.shape(), boundary_shape(micro_batch));
    for (std::int64_t i = 0; i < to.numel(); ++i) to.as<double>()[i] = factor * (micro_batch + 1) * double(i + 1);
  }
  void expect_factor(int chunk, int micro_batch, ConstTensorView view, double factor) const {
    if (!view) return;
    ASSERT_EQ(view.shape(), boundary_shape(micro_batch));
    // One check of GoogleTest for all elements: one for each would take most of the time.
    const double* values = view.as<double>();
    std::int64_t correct = 0;
    while (correct < view.numel() && values[correct] == factor * (micro_batch + 1) * double(correct + 1)) ++correct;
    ASSERT_EQ(correct, view.numel()) << "chunk " << chunk << ", micro-batch " << micro_batch << ": element " << correct
                                     << " is " << values[correct];
  }
  /// Up to a millisecond, differently on each rank and in each step: ranks run ahead of and behind one another.
  void dawdle(int step) const {
    if (!dawdles_) return;
    const std::uint64_t mixed = splitmix64(static_cast<std::uint64_t>(rank_), static_cast<std::uint64_t>(step));
    std::this_thread::sleep_for(std::chrono::microseconds(mixed % 1000));
  }

  int rank_;
  int stages_;
  int chunks_;
  std::int64_t elements_;
  bool dawdles_;
  Lengths lengths_;
  std::map<std::pair<int, int>, ConstTensorView> inputs_;
  std::map<std::pair<int, int>, ConstTensorView> output_gradients_;
};

/// Runs `schedule` three times with one executor; every stage checks each number it reads.
void expect_correct(Communicator& group, const Schedule& schedule, std::int64_t elements, bool dawdles,
                    int buffers_allowed, const ExchangeOptions& options = {}, Lengths lengths = Lengths::same) {
  SCOPED_TRACE(testing::Message() << schedule.stages << " stages, " << schedule.chunks << " chunks, "
                                  << schedule.micro_batches << " micro-batches, " << elements << " elements");
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  ToyStage stage(group.rank(), schedule.stages, schedule.chunks, elements, dawdles, lengths);
  PipelineExecutor executor(*backend, group, stage, options);
  const std::vector<Step>& steps = schedule.steps[static_cast<std::size_t>(group.rank())];
  const bool backward = std::ranges::any_of(steps, [](const Step& s) { return s.kind != StepKind::forward; });
  const int m = schedule.micro_batches;
  for (int repetition = 1; repetition <= 3; ++repetition) {
    stage.run = repetition;
    executor.run(schedule);
    EXPECT_EQ(stage.forwards, repetition * schedule.chunks * m);
    EXPECT_EQ(stage.backwards, backward ? repetition * schedule.chunks * m : 0);
    for (const double gradient : stage.weight_gradient) {
      EXPECT_EQ(gradient, backward ? repetition * m * (m + 1) / 2 : 0);
    }
  }
  const std::size_t one = static_cast<std::size_t>(elements) * sizeof(double);
  EXPECT_LE(executor.buffer_bytes(), static_cast<std::size_t>(buffers_allowed) * one);
  group.barrier();
}

TEST(PipelineExecutor, MovesEveryActivationAndGradientToItsStep) {
  Communicator& world = test::world();
  const int p = world.size();
  const auto expect_all = [&](Lengths lengths, bool overlap, int m, std::int64_t elements) {
    const auto expect = [&](const Schedule& schedule, int buffers) {
      expect_correct(world, schedule, elements, m % 2 == 1, p == 1 && schedule.chunks == 1 ? 0 : buffers,
                     {.overlap = overlap}, lengths);
    };
    // Buffers: received and sent messages of each micro-batch in flight, and a few in use.
    const bool plain = lengths == Lengths::same && !overlap;
    const int few = plain ? 4 : 6;
    expect(make_schedule(ScheduleKind::gpipe, p, m), 2 * m + few);
    expect(make_schedule(ScheduleKind::one_forward_one_backward, p, m),
           2 * std::min(plain ? p - world.rank() : p, m) + few);
    expect(make_schedule(ScheduleKind::zero_bubble, p, m), 4 * std::min(p, m) + few);
    for (const int v : {2, 3}) {
      // Beside these, messages that slower ranks have not received yet, about one each way.
      const int in_flight = std::min(2 * (p - world.rank() - 1) + (v - 1) * p + 1, m * v);
      expect(make_schedule(ScheduleKind::interleaved, p, m, v), plain ? 2 * in_flight + 2 * p + 4 : 4 * v * p + 8);
    }
    expect(make_forward_schedule(p, m), 7);
    expect(make_forward_schedule(p, m, 2), 2 * p + 8);
  };
  for (const Lengths lengths : {Lengths::same, Lengths::different}) {
    for (const bool overlap : {false, true}) {
      for (const int m : {1, 3, 8}) {
        for (const std::int64_t elements : {3, 40000}) {  // below and above what MPI sends without asking
          expect_all(lengths, overlap, m, elements);
        }
      }
    }
  }
}

TEST(PipelineExecutor, PostsReceivesBeforeTheStepOnRequest) {
  Communicator& world = test::world();
  if (world.size() != 2) GTEST_SKIP() << "two ranks show it";
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  const Schedule schedule = make_schedule(ScheduleKind::one_forward_one_backward, 2, 3);
  const auto exchanges = [&](const ExchangeOptions& options) {
    test::RecordingCommunicator recording(world);
    ToyStage stage(world.rank(), 2, 1, 5, false);
    PipelineExecutor(*backend, recording, stage, options).run(schedule);
    return recording.exchanges;
  };
  using testing::ElementsAre;
  const std::vector<std::string> together = exchanges({});
  const std::vector<std::string> apart = exchanges({.overlap = true});
  if (world.rank() == 0) {  // F0 F1 B0 F2 B1 B2; previous and next are the same rank here
    EXPECT_THAT(together,
                ElementsAre(" send next", " receive next send next", " receive next send next", " receive next"));
    EXPECT_THAT(apart, ElementsAre(" receive next", " send next", " send next", " receive next", " send next",
                                   " receive next"));
  } else {  // F0 B0 F1 B1 F2 B2
    EXPECT_THAT(together,
                ElementsAre(" receive next", " receive next send next", " receive next send next", " send next"));
    EXPECT_THAT(apart, ElementsAre(" receive next", " receive next", " send next", " receive next", " send next",
                                   " send next"));
  }
}

TEST(PipelineExecutor, SendsAndReceivesWithBothNeighboursInOneExchange) {
  Communicator& world = test::world();
  const int p = world.size();
  if (p < 3) GTEST_SKIP() << "with fewer than three ranks both neighbours are one";
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  std::set<std::string> kinds;
  for (const ScheduleKind kind : {ScheduleKind::one_forward_one_backward, ScheduleKind::interleaved}) {
    const int v = kind == ScheduleKind::interleaved ? 2 : 1;
    const Schedule schedule = make_schedule(kind, p, 2 * p, v);
    test::RecordingCommunicator recording(world);
    ToyStage stage(world.rank(), p, v, 5, false);
    PipelineExecutor(*backend, recording, stage).run(schedule);
    EXPECT_LE(recording.exchanges.size(), schedule.steps[static_cast<std::size_t>(world.rank())].size() + 1);
    kinds.insert(recording.exchanges.begin(), recording.exchanges.end());
  }
  // With nothing at all, which is no exchange, these are the nine.
  for (const char* kind :
       {" send next", " send previous", " receive next", " receive previous", " receive previous send next",
        " receive previous send previous", " receive next send next", " receive next send previous"}) {
    std::int32_t seen = kinds.contains(kind) ? 1 : 0;
    ImmediateStream host;
    world.all_reduce(host, TensorView(&seen, {1}), ReduceOp::max).wait(host);
    EXPECT_EQ(seen, 1) << kind;
  }
}

TEST(PipelineExecutor, SendsOnePartFromEachTensorRank) {
  Communicator& world = test::world();
  if (world.size() != 4) GTEST_SKIP() << "two stages of two tensor ranks are four ranks";
  const std::unique_ptr<Communicator> tensor = world.split(world.rank() / 2, world.rank(), "tensor");
  const std::unique_ptr<Communicator> pipeline = world.split(world.rank() % 2, world.rank(), "pipeline");
  for (const std::int64_t elements : {3, 4, 40000}) {
    for (const bool overlap : {false, true}) {
      for (const int m : {1, 5}) {
        const ExchangeOptions options{overlap, tensor.get()};
        test::RecordingCommunicator recording(*pipeline);
        expect_correct(recording, make_schedule(ScheduleKind::one_forward_one_backward, 2, m), elements, true, 10,
                       options);
        const std::size_t whole = static_cast<std::size_t>(3 * m * elements) * sizeof(double);
        EXPECT_EQ(recording.bytes_sent, elements % 2 == 0 ? whole / 2 : whole);
        expect_correct(*pipeline, make_schedule(ScheduleKind::interleaved, 2, m, 2), elements, true, 18, options);
        expect_correct(*pipeline, make_forward_schedule(2, m, 2), elements, true, 12, options);
        // Some of these messages go whole, and some in parts.
        expect_correct(*pipeline, make_schedule(ScheduleKind::zero_bubble, 2, m), elements, true, 14, options,
                       Lengths::different);
      }
    }
  }
}

TEST(PipelineExecutor, RecordsStepsAndWaits) {
  Communicator& world = test::world();
  const int p = world.size();
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  const Schedule schedule = make_schedule(ScheduleKind::zero_bubble, p, 3);
  ToyStage stage(world.rank(), p, 1, 5, true);
  PipelineExecutor executor(*backend, world, stage);
  TraceRecorder trace(backend->compute_stream());
  executor.set_trace(&trace);
  executor.run(schedule);
  trace.resolve();
  const auto count = [&](const char* name) {
    return std::ranges::count_if(trace.spans(), [&](const TraceSpan& span) { return std::string(span.name) == name; });
  };
  EXPECT_EQ(count("forward"), 3);
  EXPECT_EQ(count("backward input"), 3);
  EXPECT_EQ(count("backward weight"), 3);
  EXPECT_EQ(count("wait for activation"), world.rank() > 0 ? 3 : 0);
  EXPECT_EQ(count("wait for gradient"), world.rank() + 1 < p ? 3 : 0);
  for (std::size_t i = 1; i < trace.spans().size(); ++i) {
    EXPECT_LE(trace.spans()[i - 1].end_us, trace.spans()[i].start_us);
  }
  world.barrier();
}

TEST(PipelineExecutor, AlternatesBetweenTrainingAndEvaluation) {
  Communicator& world = test::world();
  const int p = world.size();
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  ToyStage stage(world.rank(), p, 1, 3000, true);
  PipelineExecutor executor(*backend, world, stage);
  executor.run(make_schedule(ScheduleKind::one_forward_one_backward, p, 4));
  executor.run(make_forward_schedule(p, 6));
  executor.run(make_schedule(ScheduleKind::gpipe, p, 3));
  EXPECT_EQ(stage.forwards, 4 + 6 + 3);
  EXPECT_EQ(stage.backwards, 4 + 3);
  EXPECT_EQ(stage.weight_gradient[0], 4 * 5 / 2 + 3 * 4 / 2);
  world.barrier();
}

}  // namespace
}  // namespace trireme::parallel
