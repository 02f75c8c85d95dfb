// Predicts training steps on GPUs, from counts: the program runs a step without computing, and a cost model turns every
// call of a kernel into time. Needs no GPU.
// usage: step_predict [--json] [--gpu NAME] [--compare FILE]
//   --json          one object a line instead of tables
//   --gpu NAME      one of H200, H100 and A100; without it all of them, and of --compare the one that FILE names
//   --compare FILE  predicted and measured times of the steps in FILE, which step_gpu_bench printed
#include <iostream>

#include "bench/step/prediction.hpp"
#include "src/base/check.hpp"

namespace trireme::bench {
namespace {

struct Arguments {
  bool json = false;
  const Device* gpu = nullptr;
  std::string compared;
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
  for (const StepCase& c : predicted_cases()) {
    const std::vector<KernelCall> calls = rehearse(c);
    for (const Device& gpu : gpus()) {
      if (arguments.gpu != nullptr && arguments.gpu != &gpu) continue;
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
    std::cerr << "usage: step_predict [--json] [--gpu H200|H100|A100] [--compare FILE]\n";
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
