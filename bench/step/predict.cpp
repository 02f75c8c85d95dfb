// Predicts training steps on GPUs, and steps of generation, from counts: the program runs a step without computing, and
// a cost model turns every call of a kernel into time. Needs no GPU.
//
// usage: step_predict [--json] [--gpu NAME] [--optimizer NAME] [--data-ranks N] [--cuda-graphs] [--compare FILE]
//   --json          one object a line instead of tables
//   --gpu NAME      one of H200, H100 and A100; without it all of them, and of --compare the one that FILE names
//   --optimizer NAME  adam, sgd or muon; adam without it
//   --data-ranks N  the first of N, which keep shards of the optimizer's state; messages take no time
//   --cuda-graphs   steps that run as graphs
//   --compare FILE  predicted and measured times of the steps in FILE, which step_gpu_bench printed
#include <algorithm>
#include <charconv>
#include <iostream>
#include <iterator>

#include "bench/step/prediction.hpp"
#include "src/base/check.hpp"

namespace trireme::bench {
namespace {

struct Arguments {
  bool json = false;
  const Device* gpu = nullptr;
  std::string compared;
  optim::OptimizerKind optimizer = optim::OptimizerKind::adam;
  int data_ranks = 1;
  bool graphs = false;
};

/// Returns whether the arguments are understood.
bool parse(const std::vector<std::string>& given, Arguments& arguments) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const bool has_value = i + 1 < given.size();
    if (given[i] == "--json") {
      arguments.json = true;
    } else if (given[i] == "--gpu" && has_value) {
      arguments.gpu = find_gpu(given[++i]);
      if (arguments.gpu == nullptr) return false;
    } else if (given[i] == "--optimizer" && has_value) {
      const auto kind = std::ranges::find(optim::optimizer_kinds, given[++i], &Choice<optim::OptimizerKind>::name);
      if (kind == std::end(optim::optimizer_kinds)) return false;
      arguments.optimizer = kind->value;
    } else if (given[i] == "--data-ranks" && has_value) {
      const std::string& ranks = given[++i];
      const auto [end, error] = std::from_chars(ranks.data(), ranks.data() + ranks.size(), arguments.data_ranks);
      if (error != std::errc() || end != ranks.data() + ranks.size() || arguments.data_ranks < 1) return false;
    } else if (given[i] == "--cuda-graphs") {
      arguments.graphs = true;
    } else if (given[i] == "--compare" && has_value) {
      arguments.compared = given[++i];
    } else {
      return false;
    }
  }
  return true;
}

void run(const Arguments& arguments) {
  if (!arguments.compared.empty()) return compare(std::cout, arguments.compared, arguments.gpu);
  std::vector<StepCase> cases = predicted_cases();
  std::ranges::copy(decoding_cases(), std::back_inserter(cases));
  for (StepCase c : cases) {
    c.optimizer = arguments.optimizer;
    c.data_ranks = arguments.data_ranks;
    c.graphs = arguments.graphs && !c.decodes;
    const std::vector<KernelCall> calls = rehearse(c);
    for (const Device& gpu : gpus()) {
      if (arguments.gpu != nullptr && arguments.gpu != &gpu) continue;
      if (c.fp8 && gpu.fp8_tflops == 0) continue;
      (arguments.json ? print_json : print)(std::cout, predict(c, gpu, calls));
    }
  }
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme;
  bench::Arguments arguments;
  if (!bench::parse({argv + 1, argv + argc}, arguments)) {
    std::cerr << "usage: step_predict [--json] [--gpu H200|H100|A100] [--optimizer NAME] [--data-ranks N] "
                 "[--cuda-graphs] [--compare FILE]\n";
    return 2;
  }
  try {
    bench::run(arguments);
  } catch (const DataError& error) {
    std::cerr << error.what() << "\n";
    return 3;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 4;
  }
  return 0;
}
