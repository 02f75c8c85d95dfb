// Steps of one of eight tensor ranks on the CPU, whose collectives pass a slow link, with and without chunks of rows.
// usage: row_chunks_bench [ROUNDS]
//
// The other ranks do not exist. The link carries one collective after another, and each takes its bytes times a time
// per byte. A step is the processor time of the computing thread, plus its waits for the link, which pass without
// sleeping. So other programs on the machine do not disturb the figures.
#include <fmt/format.h>

#include <ctime>
#include <map>
#include <utility>

#include "bench/step/step_rig.hpp"
#include "src/base/median.hpp"
#include "src/comm/forwarding_communicator.hpp"

namespace trireme::bench {
namespace {

/// Modelled link, and the clock of a step.
struct Link {
  double ms_per_byte = 0;
  double skipped_ms = 0;  ///< waits since the start
  double free_ms = 0;     ///< end of the last collective
  double bytes = 0;       ///< bytes of all collectives

  double now_ms() const {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec) + skipped_ms;
  }
};

/// A group whose collectives pass a link.
class LinkedGroup final : public ForwardingCommunicator {
 public:
  LinkedGroup(std::unique_ptr<Communicator> inner, Link& link)
      : ForwardingCommunicator(*inner), inner_(std::move(inner)), link_(link) {}
  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override {
    return over_link(2 * data.size_bytes(), inner_->all_reduce(stream, data, op));
  }
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    return over_link(in.size_bytes(), inner_->reduce_scatter(stream, in, out, op));
  }
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override {
    return over_link(out.size_bytes(), inner_->all_gather(stream, in, out));
  }

 private:
  class State final : public Work::State {
   public:
    State(Link& link, double end_ms) : link_(link), end_ms_(end_ms) {}
    bool done() override { return link_.now_ms() >= end_ms_; }
    void wait(Stream&) override { link_.skipped_ms += std::max(0.0, end_ms_ - link_.now_ms()); }

   private:
    Link& link_;
    double end_ms_;
  };

  /// A rank sends (t - 1) / t of these bytes.
  Work over_link(std::size_t size_bytes, Work inner) {
    inner = {};
    const double bytes = static_cast<double>(size_bytes) * (size() - 1) / size();
    link_.bytes += bytes;
    link_.free_ms = std::max(link_.free_ms, link_.now_ms()) + bytes * link_.ms_per_byte;
    return Work(std::make_unique<State>(link_, link_.free_ms));
  }

  std::unique_ptr<Communicator> inner_;
  Link& link_;
};

/// A rank and its link.
struct Rank {
  explicit Rank(const StepCase& c)
      : rig(c, backend, world, [this](std::unique_ptr<Communicator> group) {
          return std::make_unique<LinkedGroup>(std::move(group), link);
        }) {
    rig.initialise();
    rig.step();
  }
  double step_ms() {
    const double start = link.now_ms();
    rig.step();
    return link.now_ms() - start;
  }

  std::unique_ptr<Backend> cpu = make_backend(BackendChoice::cpu, 1);
  ObservedBackend backend{*cpu};
  SelfCommunicator world{"world"};
  Link link;
  StepRig rig;
};

int run(int rounds) {
  const model::ModelConfig config{
      .layers = 4, .hidden = 1024, .heads = 16, .ffn_hidden = 4096, .max_positions = 256, .vocabulary = 1024};
  fmt::print("GPT-2 of {} layers x {} in fp32, {} tokens, one of 8 tensor ranks; medians of {} steps\n\n",
             config.layers, config.hidden, 256, rounds);
  fmt::print("| form | link ms | chunks | step ms | waits ms | step / without chunks |\n");
  fmt::print("| --- | ---: | ---: | ---: | ---: | ---: |\n");
  for (const bool sequence_parallel : {false, true}) {
    std::map<int, Rank> ranks;
    for (const int chunks : {1, 2, 4}) {
      ranks.try_emplace(chunks, StepCase{.model = "layers of 1024",
                                         .config = config,
                                         .dtype = DType::fp32,
                                         .s = 256,
                                         .tensor_ranks = 8,
                                         .sequence_parallel = sequence_parallel,
                                         .row_chunks = chunks});
    }
    Rank& whole = ranks.at(1);
    const double bytes_before = whole.link.bytes;
    std::vector<double> computing;
    for (int i = 0; i < rounds; ++i) computing.push_back(whole.step_ms());
    const double bytes = (whole.link.bytes - bytes_before) / rounds;
    for (const double share : {0.25, 0.5, 1.0}) {
      std::map<int, std::vector<double>> steps, waits;
      for (int i = 0; i < rounds; ++i) {
        for (auto& [chunks, rank] : ranks) {
          rank.link.ms_per_byte = share * median(computing) / bytes;
          const double skipped = rank.link.skipped_ms;
          steps[chunks].push_back(rank.step_ms());
          waits[chunks].push_back(rank.link.skipped_ms - skipped);
        }
      }
      for (const auto& [chunks, ms] : steps) {
        fmt::print("| {} | {:.1f} | {} | {:.1f} | {:.1f} | {:.3f} |\n", sequence_parallel ? "TP, SP" : "TP",
                   share * median(computing), chunks, median(ms), median(waits[chunks]), median(ms) / median(steps[1]));
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) { return trireme::bench::run(argc > 1 ? std::stoi(argv[1]) : 9); }
