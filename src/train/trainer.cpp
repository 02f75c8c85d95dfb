#include "src/train/trainer.hpp"

#include <cmath>

#include "src/base/timer.hpp"
#include "src/data/sampler.hpp"
#include "src/optim/grad_norm.hpp"
#include "src/train/model_state.hpp"

namespace trireme::train {

Trainer::Trainer(ParallelGpt& gpt, const TrainOptions& options)
    : gpt_(gpt),
      options_(options),
      micro_batches_(options.global_batch_size / (gpt.layout().micro_batch_size * gpt.communicators().data->size())),
      loader_(gpt.backend(), gpt.layout().sequence_length, gpt.layout().micro_batch_size, micro_batches_,
              gpt.layout().dtype),
      adamw_(gpt.backend(), gpt.parameters(), options.adamw),
      loss_scaler_(options.loss_scale) {}

std::vector<BatchLoader::Sample> Trainer::batch_samples(std::int64_t first_index, std::int64_t first_number) const {
  const Communicator& data = *gpt_.communicators().data;
  const data::SamplerGrid grid{gpt_.layout().micro_batch_size, data.size()};
  std::vector<BatchLoader::Sample> samples;
  for (std::int64_t j = 0; j < micro_batches_; ++j) {
    const std::int64_t in_batch = data::first_sample(0, j, data.rank(), grid);
    for (std::int64_t i = 0; i < grid.micro_batch_size; ++i) {
      samples.push_back({first_index + in_batch + i, first_number + in_batch + i});
    }
  }
  return samples;
}

TrainRecord Trainer::step(const data::SampleSource& samples) {
  const Timer timer;
  TraceRecorder* const trace = gpt_.trace();
  const TraceScope scope(trace, "iteration", "iteration");
  const LayoutOptions& layout = gpt_.layout();
  const double tokens = static_cast<double>(options_.global_batch_size * layout.sequence_length);
  const double scale = loss_scaler_.scale();

  TrainRecord record;
  record.iteration = progress_.iteration + 1;
  record.loss_scale = scale;
  record.learning_rate = options_.lr_schedule.at(adamw_.updates() + 1);

  model::StageMode mode;
  mode.backward = true;
  mode.hidden_dropout = gpt_.config().hidden_dropout;
  mode.attention_dropout = gpt_.config().attention_dropout;
  mode.seed = options_.seed;
  mode.loss_gradient = scale / tokens;
  std::vector<model::MicroBatch> micro_batches;
  {
    const TraceScope reading(trace, "read samples", "data");
    micro_batches = loader_.load(samples, batch_samples(progress_.consumed_samples, progress_.consumed_samples));
  }
  gpt_.run(std::move(micro_batches), mode);
  gpt_.reduce_gradients();

  {
    const TraceScope norm(trace, "loss and gradient norm", "communication");
    record.lm_loss = gpt_.take_global_loss_sum() / tokens;
    record.grad_norm = optim::gradient_norm(gpt_.backend(), gpt_.parameters(), gpt_.communicators().tensor->rank(),
                                            *gpt_.communicators().model, gpt_.gradient_group()) /
                       scale;
  }
  record.skipped = !std::isfinite(record.grad_norm) || !std::isfinite(record.lm_loss);
  loss_scaler_.update(record.skipped);
  if (!record.skipped) {
    const TraceScope update(trace, "optimizer", "update");
    const double clip = optim::clip_coefficient(record.grad_norm, options_.clip_grad);
    adamw_.step(record.learning_rate, clip / scale,
                [&](std::size_t bucket) { gpt_.data_parallel().start_gather(bucket); });
    gpt_.data_parallel().finish_gather();
  }
  gpt_.backend().compute_stream().synchronize();

  progress_.iteration += 1;
  progress_.consumed_samples += options_.global_batch_size;
  progress_.skipped += record.skipped ? 1 : 0;
  progress_.skipped_in_row = record.skipped ? progress_.skipped_in_row + 1 : 0;
  TRIREME_CHECK(loss_scaler_.dynamic() || progress_.skipped_in_row < options_.max_skipped, NumericalError,
                "loss or gradients were not finite in {} iterations in a row, the last one {} (loss {}, gradient norm "
                "{}): lower --lr, check the data, or continue from an earlier checkpoint",
                progress_.skipped_in_row, progress_.iteration, record.lm_loss, record.grad_norm);

  record.consumed_samples = progress_.consumed_samples;
  record.elapsed_ms = timer.elapsed_ms();
  const double seconds = record.elapsed_ms / 1000;
  record.tokens_per_second = tokens / seconds;
  record.tflops_per_rank = model::model_flops(gpt_.config(), options_.global_batch_size, layout.sequence_length) /
                           seconds / 1e12 / gpt_.world().size();
  return record;
}

EvaluationRecord Trainer::evaluate(const data::SampleSource& samples, std::int64_t begin, std::int64_t iterations) {
  for (std::int64_t i = 0; i < iterations; ++i) {
    gpt_.run(loader_.load(samples, batch_samples(begin + i * options_.global_batch_size, 0)), {});
  }
  const double tokens = static_cast<double>(iterations * options_.global_batch_size * gpt_.layout().sequence_length);
  EvaluationRecord record;
  record.iteration = progress_.iteration;
  record.valid_loss = gpt_.take_global_loss_sum() / tokens;
  record.valid_ppl = std::exp(std::min(20.0, record.valid_loss));
  return record;
}

std::vector<checkpoint::StateTensor> Trainer::state_tensors() {
  std::vector<checkpoint::StateTensor> tensors;
  for (std::size_t i = 0; i < gpt_.parameters().parameters().size(); ++i) {
    tensors.push_back(state_tensor(gpt_, i, "model", adamw_.master(i)));
    tensors.push_back(state_tensor(gpt_, i, "adamw_m", adamw_.first_moment(i)));
    tensors.push_back(state_tensor(gpt_, i, "adamw_v", adamw_.second_moment(i)));
  }
  return tensors;
}

std::map<std::string, std::string> Trainer::state_attributes() const {
  const optim::LossScaler::State& scale = loss_scaler_.state();
  return {{"state.iteration", fmt::format("{}", progress_.iteration)},
          {"state.consumed_samples", fmt::format("{}", progress_.consumed_samples)},
          {"state.skipped", fmt::format("{}", progress_.skipped)},
          {"state.skipped_in_row", fmt::format("{}", progress_.skipped_in_row)},
          {"state.updates", fmt::format("{}", adamw_.updates())},
          {"state.loss_scale", fmt::format("{:.17g}", scale.scale)},
          {"state.loss_scale_good_updates", fmt::format("{}", scale.good_updates)},
          {"state.loss_scale_hysteresis_left", fmt::format("{}", scale.hysteresis_left)}};
}

void Trainer::restore(const std::map<std::string, std::string>& attributes) {
  const auto text = [&](const char* name) -> const std::string& {
    const auto found = attributes.find(std::string("state.") + name);
    TRIREME_CHECK(found != attributes.end(), CheckpointError,
                  "the checkpoint does not say '{}': it was not written by "
                  "a training run",
                  name);
    return found->second;
  };
  const auto integer = [&](const char* name) { return std::stoll(text(name)); };
  progress_.iteration = integer("iteration");
  progress_.consumed_samples = integer("consumed_samples");
  progress_.skipped = integer("skipped");
  progress_.skipped_in_row = static_cast<int>(integer("skipped_in_row"));
  adamw_.restore(integer("updates"));
  gpt_.data_parallel().gather_parameters();
  if (loss_scaler_.dynamic()) {
    loss_scaler_.restore({std::stod(text("loss_scale")), static_cast<int>(integer("loss_scale_good_updates")),
                          static_cast<int>(integer("loss_scale_hysteresis_left"))});
  }
}

}  // namespace trireme::train
