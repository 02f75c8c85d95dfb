#include "src/plan/work/stage_work.hpp"

#include "src/backend/rehearsal_backend.hpp"
#include "src/plan/work/device_stand_in.hpp"
#include "src/plan/work/recording.hpp"

namespace trireme::plan {
namespace {

using parallel::GroupKind;
using parallel::StepKind;

}  // namespace

StageWork record_stage(const model::ModelConfig& config, const train::ExecutionConfig& execution, const LayerGrid& grid,
                       const train::StageRehearsal::Layers& layers) {
  DeviceStandIn device;
  RehearsalBackend rehearsal(device);
  ObservedBackend backend(rehearsal);
  Recorder recorder;
  RecordingCommunicator tensor(GroupKind::tensor, grid.tensor, recorder);
  RecordingCommunicator context(GroupKind::context, grid.context, recorder);
  train::StageRehearsal stage(backend, tensor, context, config, execution, layers);
  backend.set_logits_columns(stage.logits_columns());
  backend.observe(&recorder);
  StageWork work;
  work.parameters = stage.parameter_elements();
  work.boundary_bytes = static_cast<double>(stage.boundary_bytes());
  for (const auto& steps : {std::vector{StepKind::forward, StepKind::backward},
                            std::vector{StepKind::forward, StepKind::backward_input, StepKind::backward_weight}}) {
    for (const StepKind kind : steps) {
      recorder.restart();
      stage.run(kind);
      work.steps[kind] = recorder.take();
    }
  }
  backend.observe(nullptr);
  return work;
}

}  // namespace trireme::plan
