#include "src/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "src/comm/host_collectives.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/train/state_tensors.hpp"

namespace trireme::train {

Trainer::Trainer(ParallelModel& model, const TrainOptions& options)
    : model_(model),
      options_(options),
      batches_(options.global_batch_size, options.ramp_up, options.decrease_batch_size,
               model.execution().micro_batch_size, model.grid().data_size()),
      loader_(model.backend(), model.sequence_shard(), model.execution().micro_batch_size, batches_.max_micro_batches(),
              model.execution().dtype,
              training_fields(model.config(), model.execution(), model.grid().tensor_size(), options.documents)),
      optimizer_(
          optim::make_optimizer(model.backend(), model.parameters(), model.gradient_groups(), options.optimizer)),
      loss_scaler_(options.loss_scale),
      outcome_(model, options.grad_norm_power),
      observed_(model.backend(), DType::fp64, {std::ssize(model.gradient_groups())}) {
  if (model.config().experts.router_bias) router_biases_.emplace(model);
  GuardOptions guards = options.guards;
  if (options.loss_scale.dynamic) guards.check_for_nan = false;
  if (guards.check_for_nan || guards.spiky_loss_factor > 0) guard_.emplace(model, guards);
  if (model.execution().parallel.data_parallel.updates_beside_forward() && optimizer_->runs_beside()) {
    update_stream_ = model.backend().make_background_stream();
    model.data_parallel().expect_updates(*update_stream_);
  }
}

Trainer::~Trainer() {
  if (!update_stream_) return;
  try {
    update_stream_->synchronize();  // before the memory of the update is freed
  } catch (const Error&) {
    // No one reads the results after this point.
  }
}

void Trainer::start() {
  optimizer_->reset_masters();
  if (router_biases_) router_biases_->read([this](std::size_t i) { return masters_of(i); });
}

std::vector<BatchLoader::Sample> Trainer::batch_samples(std::int64_t first_index, std::int64_t first_number,
                                                        std::int64_t size) const {
  const Communicator& data = *model_.communicators().data;
  return BatchLoader::samples_of_rank(first_index, first_number, size, data.rank(),
                                      {model_.execution().micro_batch_size, data.size()});
}

std::vector<BatchLoader::Sample> Trainer::update_samples(const data::SampleSource& samples, std::int64_t first,
                                                         std::int64_t size) const {
  if (!model_.execution().variable_lengths || options_.loss_average != LossAverage::tokens) {
    return batch_samples(first, first, size);
  }
  const std::vector<std::int64_t> order = longest_first(samples, first, size);
  std::vector<BatchLoader::Sample> list = batch_samples(0, 0, size);
  for (BatchLoader::Sample& sample : list) {
    sample.index = sample.number = order[static_cast<std::size_t>(sample.index)];
  }
  return list;
}

BatchLoader::Form Trainer::form_of_update() const {
  return {options_.loss_average, model_.execution().variable_lengths ? model_.length_multiple() : 0};
}

Trainer::Work Trainer::work_of(const std::vector<model::MicroBatch>& micro_batches, std::int64_t batch_size) const {
  const ExecutionConfig& execution = model_.execution();
  const std::int64_t s = execution.sequence_length;
  if (!execution.variable_lengths) {
    return {static_cast<double>(batch_size * s),
            model::model_flops(model_.config(), batch_size, s, execution.max_predictions)};
  }
  std::array<double, 2> sums = {static_cast<double>(loader_.unpadded_positions()), 0};
  for (std::int64_t j = 0; j < std::ssize(micro_batches); ++j) {
    sums[1] += model::model_flops(model_.config(), execution.micro_batch_size, loader_.shard(j).sequence,
                                  execution.max_predictions);
  }
  Communicator& world = model_.world();
  all_reduce_numbers(world, sums, ReduceOp::sum);
  const double ranks_of_replica = world.size() / model_.grid().data_size();
  return {sums[0] / ranks_of_replica, sums[1] / ranks_of_replica};
}

Trainer::LabelCounts Trainer::loaded_labels() const {
  const auto samples = std::ranges::count_if(loader_.sample_labels(), [](std::int32_t label) { return label >= 0; });
  return {loader_.counted_tokens(), samples};
}

Trainer::LabelCounts Trainer::sum_over_data_ranks(const LabelCounts& mine) const {
  Communicator& world = model_.world();
  std::array<std::int64_t, 2> counts = {mine.tokens, mine.samples};
  all_reduce_numbers(world, counts, ReduceOp::sum);
  const int ranks_of_replica = world.size() / model_.grid().data_size();
  return {counts[0] / ranks_of_replica, counts[1] / ranks_of_replica};
}

std::int64_t Trainer::count_correct() {
  const std::vector<double> scores = model_.take_sample_scores();
  const std::vector<std::int32_t>& labels = loader_.sample_labels();
  if (scores.empty()) return 0;
  const std::size_t classes = scores.size() / labels.size();
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = std::span(scores).subspan(i * classes, classes);
    if (std::ranges::max_element(row) - row.begin() == labels[i]) ++correct;
  }
  return correct;
}

void Trainer::note_expert_loads(std::int64_t micro_batches, TrainRecord& record) {
  record.experts.clear();
  expert_loads_ = model_.take_expert_loads();
  for (const model::ExpertLoad& load : expert_loads_) {
    const double kept = std::accumulate(load.tokens.begin(), load.tokens.end(), 0.0);
    const double mean = kept / static_cast<double>(load.tokens.size());
    LayerLoad layer{.layer = load.layer,
                    .balance_loss = load.balance / static_cast<double>(micro_batches),
                    .z_loss = load.z / static_cast<double>(micro_batches),
                    .router_entropy = load.entropy / static_cast<double>(micro_batches),
                    .max_load = std::ranges::max(load.tokens) / std::max(mean, 1.0),
                    .dropped = load.dropped / std::max(kept + load.dropped, 1.0)};
    for (const double tokens : load.tokens) {
      if (tokens > 0) layer.entropy -= tokens / kept * std::log(tokens / kept);
    }
    layer.entropy /= std::log(std::max<double>(2, static_cast<double>(load.tokens.size())));
    record.experts.push_back(layer);
  }
}

void Trainer::check_replicas() {
  // Experts may have replicas on other ranks than the rest.
  if (std::ranges::all_of(model_.gradient_groups(), [](const auto& group) { return group.gradient.size() == 1; })) {
    return;
  }
  if (!replicas_) replicas_.emplace(model_, *optimizer_);
  replicas_->check(progress_.iteration);
}

std::optional<EvaluationRecord> Trainer::evaluate(const data::SampleSource& samples, std::int64_t begin,
                                                  std::int64_t iterations, const std::function<bool()>& stop,
                                                  data::Split split) {
  const std::int64_t batch_size = batches_.max_size();
  LabelCounts mine;
  double correct = 0;
  bool stopped = false;
  for (std::int64_t i = 0; i < iterations && !stopped; ++i) {
    Begun batch;
    batch.samples = batch_samples(begin + i * batch_size, 0, batch_size);
    batch.record.batch_size = batch_size;
    take_memory(samples, batch);
    model_.run(loader_.load(samples, batch.samples, {.length_multiple = form_of_update().length_multiple}),
               {.limits_experts = true});
    const LabelCounts loaded = loaded_labels();
    mine.tokens += loaded.tokens;
    mine.samples += loaded.samples;
    correct += static_cast<double>(count_correct());
    stopped = stop && i + 1 < iterations && stop();
  }
  if (split == data::Split::test) {
    progress_.tested = !stopped;
  } else {
    progress_.evaluation_left = stopped;
  }
  const model::LossSums sums = model_.take_global_loss_sums();
  if (stopped) return std::nullopt;
  const LabelCounts counts = sum_over_data_ranks(mine);
  EvaluationRecord record;
  record.iteration = progress_.iteration;
  record.consumed_samples = progress_.consumed_samples;
  record.split = split;
  record.loss = unsigned_nan(sums.tokens / static_cast<double>(std::max<std::int64_t>(counts.tokens, 1)));
  record.perplexity = std::exp(std::min(20.0, record.loss));
  if (model_.config().has_binary_head()) {
    const double samples = static_cast<double>(std::max<std::int64_t>(counts.samples, 1));
    record.sop_loss = unsigned_nan(sums.samples / samples);
    record.sop_accuracy = all_reduce_number(model_.world(), correct, ReduceOp::sum) / samples;
  }
  return record;
}

std::vector<checkpoint::StateTensor> Trainer::state_tensors(OptimizerState optimizer) {
  await_update();
  std::vector<checkpoint::StateTensor> tensors;
  for (std::size_t i = 0; i < model_.parameters().parameters().size(); ++i) {
    for (const optim::Optimizer::State& state : optimizer_->state(i)) {
      if (optimizer == OptimizerState::left_out && state.kind != "model") continue;
      tensors.push_back(state_tensor(model_, i, state.kind, state.data));
    }
  }
  return tensors;
}

Attributes Trainer::state_attributes() const {
  return attributes_of(
      SavedState{progress_, optimizer_->updates(), loss_scaler_.state(), balance_loads_, fp8_history_, spikes_});
}

void Trainer::restore(const Attributes& attributes, OptimizerState optimizer) {
  const SavedState saved = state_from(attributes);
  const bool kept = optimizer == OptimizerState::kept;
  await_update();
  progress_ = saved.progress;
  spikes_ = saved.spikes;
  optimizer_->restore(kept ? saved.updates : 0);
  if (model_.config().experts.balances_by(model::BalanceLoss::global)) {
    balance_loads_ = saved.expert_loads;
    model_.stage().set_balance_loads(balance_loads_);
  }
  const parallel::Fp8Options& fp8 = model_.execution().fp8;
  if (kept && fp8.used && fp8.recipe == parallel::Fp8Recipe::delayed) {
    // Without magnitudes of a layer, which was not rounded when this was saved, the next update measures all of them.
    const bool knows_all = saved.fp8_history.covers(fp8, model_.config().layers);
    fp8_history_ = knows_all ? saved.fp8_history : Fp8History();
    if (knows_all) {
      model_.set_fp8_amax(fp8_history_.amax(fp8));
    } else {
      model_.forget_fp8_amax();
    }
  }
  if (router_biases_) router_biases_->read([this](std::size_t i) { return masters_of(i); });
  model_.data_parallel().gather_parameters();
  // A constant scale, as of bf16, says nothing of a dynamic one.
  const std::string scale = "training.loss-scale";
  const bool was_dynamic = !attributes.contains(scale) || attributes.get<std::string>(scale) == "dynamic";
  if (kept && was_dynamic && loss_scaler_.dynamic()) loss_scaler_.restore(saved.loss_scale);
}

Rewind Trainer::rewind(const Attributes& attributes) {
  const std::int64_t from = progress_.iteration;
  std::vector<Rewind> earlier = spikes_.rewinds();
  restore(attributes);
  Rewind rewind{.from = from, .to = progress_.iteration, .first_sample = progress_.consumed_samples};
  while (progress_.iteration < from) {
    progress_.add_iteration(batches_.size(progress_.consumed_samples), Skip::requested, loss_scaler_.at_minimum());
  }
  rewind.end_sample = progress_.consumed_samples;
  spikes_.add(std::move(earlier), rewind);
  return rewind;
}

}  // namespace trireme::train
