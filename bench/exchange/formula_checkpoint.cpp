// Writes a checkpoint with the initial weights of a model that has no room in memory: formula_checkpoint PRESET DIR
//
// The weights are those of `train --init-method hashed-uniform --train-iters 0 --save DIR`, without the optimizer's
// state. Under mpirun the ranks share the work. A rank holds one slice of a tensor at a time.
#include <cstdio>
#include <string>

#include "io/checkpoint/checkpoint_store.hpp"
#include "mpi/run_main.hpp"
#include "src/app/commands/checkpoint/import_input.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/presets.hpp"
#include "src/model/stage/model_parameters.hpp"

namespace trireme {
namespace {

/// The parameters of a model with their initial weights, as tensors with their own names and shapes.
class FormulaSource final : public exchange::TensorSource {
 public:
  explicit FormulaSource(const model::ModelConfig& config) : backend_(cpu::make_backend(1)) {
    options_.method = model::InitMethod::hashed_uniform;
    options_.layers = config.layers;
    parameters_ = model::all_parameters(config);
    for (const parallel::Parameter& parameter : parameters_) {
      tensors_.push_back({parameter.name, DType::fp32, parameter.shape});
    }
  }

  std::string description() const override { return "the formula of initial weights"; }
  const std::vector<exchange::ForeignTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override {
    const auto count = static_cast<std::int64_t>(out.size() / sizeof(float));
    parallel::Parameter slice = parameters_[tensor];
    slice.shape = {slice.shape.numel()};  // values follow from the name and the index in the flat tensor
    slice.box = Box::whole({count});
    slice.box.offset = {first};
    slice.value = TensorView(out.data(), DType::fp32, {count});
    model::initialise(*backend_, std::span(&slice, 1), options_);
  }

 private:
  std::unique_ptr<Backend> backend_;
  model::Initialisation options_;
  std::vector<parallel::Parameter> parameters_;
  std::vector<exchange::ForeignTensor> tensors_;
};

int run(const mpi::MpiEnvironment& environment, const std::string& preset, const std::string& folder) {
  const auto world = environment.make_world();
  app::ImportInput input;
  input.config = model::preset(preset);
  input.source = std::make_unique<FormulaSource>(input.config);
  input.tokenizer = data::make_null_tokenizer(input.config.vocabulary, input.config.vocabulary - 1);
  exchange::TensorMapBuilder map(input.config);
  exchange::MatchedTensors tensors;
  for (const exchange::ForeignTensor& tensor : input.source->tensors()) {
    tensors.push_back({tensors.size()});
    map.same(tensor.name, tensor.name);
  }
  io::CheckpointStore store(folder);
  exchange::import_weights(*input.source, map.finish(), tensors, DType::fp32, store, *world,
                           app::description_of(input, DType::bf16));
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: formula_checkpoint PRESET DIR\n", stderr);
    return 2;
  }
  const std::string preset = argv[1], folder = argv[2];
  return trireme::mpi::run_main(argc, argv, [&](const trireme::mpi::MpiEnvironment& environment) {
    return trireme::run(environment, preset, folder);
  });
}
